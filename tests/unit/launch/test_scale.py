"""Training configuration scaled to the number of ranks: changed values, unchanged values, and reasons."""

from __future__ import annotations

import json

import pytest
import tomlkit
from builders import a_node, answers

from gconsole.launch.format import plan_text
from gconsole.launch.plan import LaunchPlan, Refusal, plan
from gconsole.launch.request import JobRequest
from gconsole.launch.scale import BadConfigFile, CannotScale, JobSize, ScaleConfig, scale

SIZE = JobSize("train-1", 4, 8, "10.0.0.1", 29500)

YAML = """\
# the run of tuesday
model: llama            # 8B
optimizer:
  lr: 1.0e-4            # for a batch of 256
  betas: [0.9, 0.95]
train_batch_size: 256   # of the whole job
output_dir: /data/out
schedule:
  - name: warmup
    lr: 1e-5
"""


def changed(config: ScaleConfig, size: JobSize = SIZE) -> dict[str, tuple[str, str]]:
    return {change.key: (change.before, change.after) for change in scale(config, size).changes}


def test_global_batch_size_is_divided_and_the_learning_rate_is_kept():
    found = changed(ScaleConfig("c.yaml", YAML))
    assert found == {"train_batch_size": ("256", "8"), "output_dir": ("/data/out", "$GCONSOLE_JOB_DIR/output_dir")}


def test_per_rank_batch_size_is_kept_and_the_learning_rate_is_scaled():
    text = json.dumps({"per_device_train_batch_size": 4, "learning_rate": 1e-4, "warmup": {"lr": "1e-5"}})
    found = changed(ScaleConfig("c.json", text))
    assert found == {"learning_rate": ("0.0001", "0.0032"), "warmup.lr": ("1e-05", "0.00032")}


def test_indivisible_batch_size_is_rounded_and_the_learning_rate_follows():
    found = changed(ScaleConfig("c.json", '{"batch_size": 100, "lr": 1.0}'))
    assert found == {"batch_size": ("100", "3"), "lr": ("1.0", "0.96")}


def test_user_can_declare_the_batch_size_to_be_per_rank():
    found = changed(ScaleConfig("c.json", '{"batch_size": 16, "lr": 0.1}', "rank"))
    assert found == {"lr": ("0.1", "3.2")}


def test_config_with_global_and_micro_batch_size_is_rejected_as_ambiguous():
    with pytest.raises(CannotScale, match="choose one with --scale-batch"):
        scale(ScaleConfig("c.json", '{"batch_size": 64, "micro_batch_size": 2}'), SIZE)


def test_comments_order_and_other_settings_of_yaml_stay():
    copy = scale(ScaleConfig("c.yaml", YAML), SIZE).first
    kept = [line for line in YAML.splitlines() if "batch_size" not in line]
    assert [line for line in copy.splitlines() if line in kept] == kept
    assert "train_batch_size: 8     # of the whole job" in copy or "train_batch_size: 8   # of the whole job" in copy


def test_comments_of_toml_stay():
    copy = scale(ScaleConfig("c.toml", "# mine\nbatch_size = 64  # all\n[optim]\nlr = 0.1 # base\n"), SIZE).first
    assert copy.startswith("# mine\nbatch_size = 2  # all\n[optim]\nlr = 0.1 # base\n")
    assert tomlkit.parse(copy)["distributed"]["world_size"] == 32


def test_only_the_node_of_rank_0_writes_to_the_configured_output_folder():
    found = scale(ScaleConfig("c.yaml", YAML), SIZE)
    assert "output_dir: /data/out" in found.first
    assert "output_dir: $GCONSOLE_JOB_DIR/output_dir" in found.others
    assert scale(ScaleConfig("c.yaml", YAML), JobSize("j", 1, 8, "127.0.0.1", 1)).others.count("/data/out") == 1


def test_scaled_copy_contains_the_job_dimensions():
    data = json.loads(scale(ScaleConfig("c.json", '{"lr": 1}'), SIZE).first)["distributed"]
    assert (data["world_size"], data["nodes"], data["master_addr"], data["job"]) == (32, 4, "10.0.0.1", "train-1")
    own = json.loads(scale(ScaleConfig("c.json", '{"distributed": "fsdp"}'), SIZE).first)
    assert (own["distributed"], own["gconsole_distributed"]["world_size"]) == ("fsdp", 32)


@pytest.mark.parametrize(("name", "text", "why"), [
    ("c.json", "{", "line 1"), ("c.toml", "a = ", "line 1"), ("c.yaml", "a: [", "line"), ("c.ini", "", "not a .json"),
    ("c.json", "[1]", "does not contain a table"),
])  # fmt: skip
def test_error_of_an_unreadable_config_gives_the_reason(name: str, text: str, why: str):
    with pytest.raises(BadConfigFile, match=why):
        scale(ScaleConfig(name, text), SIZE)


class TestScaledPlan:
    def planned(self, config: ScaleConfig, *command: str) -> LaunchPlan | Refusal:
        nodes = [a_node(1), a_node(2)]
        request = JobRequest(("train.py", *command), nodes=2, gpus_per_node=8, scale=config)
        found = plan(request, "train-1", nodes, answers(nodes), 1)
        assert isinstance(found, LaunchPlan | Refusal)
        return found

    def test_command_uses_the_scaled_copy_and_the_plan_shows_the_diff(self):
        found = self.planned(ScaleConfig("conf/c.yaml", YAML), "--config=conf/c.yaml", "./conf/c.yaml")
        assert isinstance(found, LaunchPlan)
        words = found.first.commands[0].argv
        assert words[-2:] == ("--config=$GCONSOLE_JOB_DIR/config/c.yaml", "$GCONSOLE_JOB_DIR/config/c.yaml")
        text = plan_text(found)
        assert "-train_batch_size: 256" in text
        assert "train_batch_size: 256 → 16, 16 on each of 16 ranks makes 256, unchanged" in text
        assert [order.files[0][1].count("/data/out") for order in found.orders.values()] == [1, 0]

    def test_command_without_the_config_file_is_warned_with_the_copy_path(self):
        found = self.planned(ScaleConfig("c.yaml", YAML))
        assert isinstance(found, LaunchPlan)
        assert "the copy is at $GCONSOLE_CONFIG" in found.warnings[-1]
        assert found.first.env["GCONSOLE_CONFIG"] == "$GCONSOLE_JOB_DIR/config/c.yaml"

    def test_plan_is_refused_when_the_config_cannot_be_scaled(self):
        found = self.planned(ScaleConfig("c.yaml", "batch_size: many"))
        assert isinstance(found, Refusal)
        assert found.reason == "--scale-config: batch_size = 'many' is not a batch size; use a whole number"
