"""The API's resources for a cluster, in gconsole's and gswarm's terms."""

from __future__ import annotations

import concurrent.futures
import json
import urllib.request
from typing import Any

import psutil
import pytest
from api_client import Api, until
from rig import Rig

NAMES = ["node1", "node2", "node3", "node4"]


def test_every_node_and_gpu_is_listed_with_its_figures(api: Api) -> None:
    nodes = api.get("/nodes")["nodes"]
    assert [node["node"] for node in nodes] == NAMES
    assert [node["about"]["hostname"] for node in nodes] == NAMES
    assert all(node["figures"]["mem_used_bytes"] > 0 for node in nodes)
    assert all(node["capabilities"]["cpus"] > 0 for node in nodes)
    assert all(sum(model["count"] for model in node["capabilities"]["gpus"]) == 4 for node in nodes)
    until(lambda: sum(gpu["power_w"] is not None for gpu in api.get("/gpus")["gpus"]) == 16)
    assert [gpu["index"] for gpu in api.get("/gpus?node=node2")["gpus"]] == [0, 1, 2, 3]
    assert api.get("/gpus?node=elsewhere") == {"gpus": []}


def test_gswarm_endpoints_respond_as_documented(api: Api) -> None:
    status = api.get("/status")
    assert status["connected_clients"] == NAMES and status["total_gpus"] == 16
    assert status["is_profiling"] is False and status["active_sessions"] == []
    clients = api.get("/clients")
    assert clients["total_clients"] == 4
    assert clients["clients"][0]["gpus"][0]["id"].startswith("node1:0:"), "hostname:device_idx:device_name"
    latest = until(lambda: (metrics := api.get("/metrics/latest"))["client_data"].keys() == set(NAMES) and metrics)
    metric = latest["client_data"]["node3"]["gpus_metrics"][0]
    assert 0 <= metric["gpu_util"] <= 100 and 0 <= metric["mem_util"] <= 100, "percent"
    assert "message" in api.get("/") and "version" in api.get("/")


def test_several_sessions_record_at_once_and_stop_by_name(api: Api) -> None:
    for name in ("full_training", "one_phase"):
        assert api.post("/profiling/start", {"name": name})["success"] is True
    assert api.get("/status")["is_profiling"] is True
    again = api.request("POST", "/profiling/start", {"name": "one_phase"})
    assert again.status == 409 and "already being recorded" in again.json["text"]
    assert api.get("/profiling/sessions")["active"] == ["full_training", "one_phase"]
    until(lambda: all(session["records"] > 0 for session in api.get("/status")["active_sessions"]))
    stopped = api.post("/profiling/stop", {"name": "one_phase"})["stopped"]
    assert [session["name"] for session in stopped] == ["one_phase"]
    assert api.request("POST", "/profiling/stop", {"name": "one_phase"}).status == 404
    unnamed = api.post("/profiling/start", {})["name"]
    assert {session["name"] for session in api.post("/profiling/stop", {})["stopped"]} == {"full_training", unnamed}
    assert api.post("/profiling/stop", {})["message"] == "Profiling is not active."
    states = {session["name"]: session["state"] for session in api.get("/profiling/sessions")["sessions"]}
    assert states["full_training"] == states["one_phase"] == "closed"


def test_node_is_removed_and_added_over_http(changing_api: Api) -> None:
    api = changing_api
    assert api.request("DELETE", "/nodes/node4").status == 200
    assert [node["node"] for node in api.get("/nodes")["nodes"]] == NAMES[:3]
    assert api.request("DELETE", "/nodes/node4").status == 404
    assert api.post("/nodes", {"nodes": "node[1-4]"}, status=202) == {"added": ["node4"], "kept": False}
    api.until_connected(4)


def test_added_nodes_are_kept_in_hosts_toml_with_user_and_port(changing_api: Api) -> None:
    api = changing_api
    path = api.hosts
    before = path.read_text()
    try:
        wanted = {"nodes": "spare1", "user": "ops", "port": 2222, "keep": True}
        assert api.post("/nodes", wanted, status=202) == {"added": ["spare1:2222"], "kept": True}
        assert 'hosts = "ops@spare1:2222"' in path.read_text()
        assert api.request("POST", "/nodes", {"nodes": "spare2", "user": "-oProxyCommand=x"}).status == 400
    finally:
        path.write_text(before)
        api.request("DELETE", "/nodes/spare1:2222")


def test_plan_over_http_scales_a_configuration_and_checks_imports(api: Api) -> None:
    wanted = {"command": ["python3", "/no/such/train.py"], "launcher": "env", "nodes": 2, "gpus_per_node": 0}
    refused = api.request("POST", "/jobs/plan", wanted)
    assert refused.status == 409 and "script /no/such/train.py does not exist" in json.dumps(refused.json)
    scale = {"path": "c.json", "text": '{"lr": 0.1, "per_device_train_batch_size": 8}'}
    planned = api.post("/jobs/plan", {**wanted, "command": ["true", "c.json"], "scale": scale, "check_imports": True})
    assert "lr: 0.1 → 0.2" in planned["text"]
    copied = api.request("POST", "/jobs/plan", {**wanted, "sync": "/root/.ssh"})
    assert (copied.status, copied.json["name"]) == (400, "malformed"), "no folder of this machine"


def test_job_after_another_starts_once_that_has_completed(changing_api: Api) -> None:
    api = changing_api
    wanted = {"launcher": "env", "nodes": 1, "gpus_per_node": 0}
    unknown = api.request("POST", "/jobs/plan", {**wanted, "command": ["true"], "after": ["nosuch"]})
    assert (unknown.status, unknown.json["name"]) == (404, "no_such_job")
    first = api.post("/jobs", {**wanted, "command": ["sleep", "600"]}, status=201)["job"]
    assert api.post("/jobs/plan", {**wanted, "command": ["true"], "after": [first]})["world_size"] == 1
    early = api.request("POST", "/jobs", {**wanted, "command": ["true"], "after": [first]})
    assert (early.status, early.json["name"]) == (409, "after_running")
    assert api.post(f"/jobs/{first}/stop", {"grace_s": 5})["ended"]
    until(lambda: api.get(f"/jobs/{first}")["over"])
    late = api.request("POST", "/jobs", {**wanted, "command": ["true"], "after": [first]})
    assert (late.status, late.json["name"]) == (409, "after_failed"), "it was stopped"
    second = api.post("/jobs", {**wanted, "command": ["true"]}, status=201)["job"]
    until(lambda: api.get(f"/jobs/{second}")["state"] == "completed")
    third = api.post("/jobs", {**wanted, "command": ["true"], "after": [second]}, status=201)
    assert third["job"].startswith("true-")


def test_doctor_checks_only_the_requested_nodes(api: Api) -> None:
    exams = api.post("/nodes/health", {"nodes": "node[1-2]"})["nodes"]
    assert [exam["node"] for exam in exams] == ["node1", "node2"]
    assert all(exam["reached"] and exam["checks"] for exam in exams)
    unknown = api.request("POST", "/nodes/health", {"nodes": "nobody7"})
    assert unknown.status == 404 and "nobody7" in unknown.json["text"]


def test_capture_without_a_job_returns_no_jobs_and_no_failures(api: Api) -> None:
    capture = api.post("/captures", {"samples": 1})
    assert capture["jobs"] == [] and capture["failures"] == {}
    assert api.post("/diagnose", {"samples": 1})["verdicts"] == []


def test_two_clients_are_answered_side_by_side(api: Api) -> None:
    def list_nodes(_: int) -> list[list[str]]:
        return [[node["node"] for node in api.get("/nodes")["nodes"]] for _ in range(20)]

    with concurrent.futures.ThreadPoolExecutor(2) as clients:
        assert list(clients.map(list_nodes, range(2))) == [[NAMES] * 20] * 2


def test_changes_of_jobs_and_nodes_are_forbidden_without_allow_run(api: Api) -> None:
    before = [node["node"] for node in api.get("/nodes")["nodes"]]
    requests: list[tuple[str, str, Any]] = [
        ("POST", "/jobs", {"command": ["true"]}), ("POST", "/jobs/train-1/stop", {}),
        ("POST", "/nodes", {"nodes": "node[1-9]"}), ("DELETE", "/nodes/node4", None),
    ]  # fmt: skip
    for method, path, body in requests:
        response = api.request(method, path, body)
        assert response.status == 403 and response.json["name"] == "read_only"
        assert "--allow-run" in response.json["try"]
    assert [node["node"] for node in api.get("/nodes")["nodes"]] == before


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/jobs/plan", b"{", 400), ("/jobs/plan", {"command": []}, 400), ("/jobs/plan", {"command": "true"}, 400),
        ("/jobs/plan", {"command": ["true"], "nodez": 2}, 400), ("/nodes", {"nodes": "a;b"}, 400),
        ("/nodes/health", {"nodes": "node[1-"}, 400), ("/captures", {"samples": 0}, 400),
        ("/captures", b"[" * 100_000, 400), ("/captures", b" " * (1 << 20) + b"{}", 413),
        ("/jobs/plan", {"command": ["true"], "env": {"GCONSOLE_JOB": "x"}}, 400),
    ],
)  # fmt: skip
def test_invalid_request_body_is_rejected_with_an_explanation(api: Api, path: str, body: Any, status: int) -> None:
    response = api.request("POST", path, body)
    assert response.status == status, response
    assert response.json["status"] == status and response.json["text"]


def test_request_without_json_content_type_is_rejected(api: Api) -> None:
    """Requests that a page of another site can send without preflight: a form, or plain text."""
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        assert api.request("POST", "/captures", b'{"samples": 1}', Content_Type=kind).status == 415


def test_docs_page_lists_every_path_and_loads_no_external_resources(api: Api) -> None:
    response = api.request("GET", "/docs")
    page = response.body.decode()
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert all(f"<code>{path}</code>" in page for path in api.get("/openapi.json")["paths"])
    assert "<script" not in page and "src=" not in page and "http" not in page.partition("<style>")[0]


def test_basic_auth_is_accepted_only_for_api_documentation(api: Api) -> None:
    handlers = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    handlers.add_password(None, api.url, "anybody", api.token)
    browser = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(handlers))
    with browser.open(f"{api.url}/openapi.json") as response:
        assert json.load(response)["openapi"] == "3.1.0"
    assert api.request("GET", "/nodes", token=None, Authorization="Basic YTpi").status == 401


# -- queries and single nodes ------------------------------------------------------------------------------------------


def test_query_reads_live_history_and_keeps_its_process(api: Api) -> None:
    until(lambda: api.post("/query", {"sql": "SELECT count(*) FROM gpu"})["rows"][0][0] >= 32)
    sql = "SELECT node, count(DISTINCT uuid) AS gpus, max(power_w) AS power_w FROM gpu GROUP BY node ORDER BY node"
    result = api.post("/query", {"sql": sql})
    assert [row[:2] for row in result["rows"]] == [[name, 4] for name in NAMES]
    assert [(column["name"], column["unit"]) for column in result["columns"]] == [
        ("node", ""), ("gpus", ""), ("power_w", "W"),
    ]  # fmt: skip
    assert (result["truncated"], result["damage"]) == (False, [])
    workers = [child.pid for child in psutil.Process(api.pid).children() if "worker" in " ".join(child.cmdline())]
    assert len(workers) == 1
    assert api.post("/query", {"sql": "SELECT i FROM range(5) t(i)", "limit": 3})["truncated"]
    assert [child.pid for child in psutil.Process(api.pid).children() if child.pid in workers] == workers


def test_query_that_is_wrong_is_rejected_with_the_reason(api: Api) -> None:
    for sql, words in (
        ("DROP TABLE gpu", "read-only"), ("SELECT nonsense FROM gpu", "nonsense"),
        ("FROM read_csv('/etc/passwd')", "only the records"),
        ("SELECT count(*) FROM range(1e6::BIGINT) a, range(1e6::BIGINT) b", "no result within"),
    ):  # fmt: skip
        problem = api.post("/query", {"sql": sql, "timeout_s": 1.0}, status=400)
        assert words in problem["text"]
    assert api.post("/query", {"sql": "SELECT 1", "session": "nosuch"}, status=404)["name"] == "no_such_session"
    assert api.request("POST", "/query", {"sql": "SELECT 1", "session": "../x"}).status == 400
    assert api.post("/query", {"sql": "SELECT 1"})["rows"] == [[1]]


def test_query_of_a_session_of_the_console(api: Api) -> None:
    api.post("/profiling/start", {"name": "queried"})
    until(lambda: api.post("/query", {"sql": "SELECT count(*) FROM host", "session": "queried"})["rows"][0][0] > 0)
    api.post("/profiling/stop", {"name": "queried"})


def test_one_node_is_returned_with_its_gpus_ranks_and_findings(api: Api) -> None:
    detail = api.get("/nodes/node2")
    assert (detail["node"]["node"], detail["node"]["about"]["state"]) == ("node2", "ok")
    assert [(gpu["node"], gpu["index"]) for gpu in detail["gpus"]] == [("node2", index) for index in range(4)]
    assert (detail["ranks"], [finding for finding in detail["findings"] if finding["severity"] == "error"]) == ([], [])
    assert api.request("GET", "/nodes/elsewhere").status == 404


def test_figures_of_gpus_of_a_disconnected_node_are_null_with_an_age_that_grows(changing_api: Api, rig: Rig) -> None:
    def gpus() -> list[dict[str, Any]]:
        return changing_api.get("/gpus?node=node4")["gpus"]

    until(lambda: gpus() and all(gpu["power_w"] is not None for gpu in gpus()))
    node = rig.node("node4")
    node.stop_sshd(sessions=True)
    try:
        until(lambda: all(gpu["power_w"] is None and gpu["stale_s"] is not None for gpu in gpus()))
        age = gpus()[0]["stale_s"]
        until(lambda: gpus()[0]["stale_s"] > age + 1)
        assert changing_api.get("/nodes/node4")["gpus"][0]["power_w"] is None
        assert gpus()[0]["name"], "what does not change is kept"
    finally:
        node.start_sshd()
    until(lambda: all(gpu["power_w"] is not None and gpu["stale_s"] is None for gpu in gpus()))
