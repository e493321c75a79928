"""[[watch.rule]] in hosts.toml: what is accepted, and the error of everything else with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from gconsole.config import ConfigError, load
from gconsole.config.show import config_data, config_text
from gconsole.monitor.alerting.rules import compile_rules

NODES = '[[nodes]]\nhosts = "node1"\n'
RULE = '[[watch.rule]]\nname = "page"\n'


def loaded(tmp_path: Path, text: str, environ: dict[str, str] | None = None):
    (tmp_path / "hosts.toml").write_text(NODES + text)
    config = load(str(tmp_path / "hosts.toml"), environ={})
    return compile_rules(config, {"PATH": "/usr/bin:/bin", **(environ or {})})


def test_rules_are_read_in_order_with_their_durations(tmp_path: Path) -> None:
    first, second = loaded(
        tmp_path,
        f'{RULE}on = ["warning", "gpu_xid"]\nafter = "2m"\nat_most_every = "1h"\nrun = ["true"]\n'
        '[[watch.rule]]\nname = "night"\ntextfile = "x.prom"\n',
    )
    assert (first.name, first.after_s, first.every_s, first.acts) == ("page", 120.0, 3600.0, True)
    assert (second.config.textfile, second.acts) == (str(tmp_path / "x.prom"), False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[watch]\nrule = 3\n', "watch.rule: must be [[watch.rule]] entries, is 3"),
        ('[watch.rule]\nname = "x"\n', "must be a list of entries; write [[watch.rule]] with two brackets"),
        (f"{RULE}", "watch.rule.name: does nothing; add keep, run, post or textfile"),
        ('[[watch.rule]]\nkeep = true\n', 'watch.rule.name: is missing; add name = "page"'),
        (f"{RULE}keep = true\n{RULE}keep = true\n", 'watch.rule.name: "page" occurs twice'),
        (f"{RULE}kep = true\n", "watch.rule.kep: unknown key (did you mean keep?)"),
        (f'{RULE}keep = "yes"\n', 'watch.rule.keep: must be true or false, is "yes"'),
        (f'{RULE}keep = true\nafter = "5"\n', 'watch.rule.after: must be a duration, like 90s, 30m or 2h, is "5"'),
        (f'{RULE}keep = true\non = ["gpu_lots"]\n', "unknown severity or finding id: gpu_lots"),
        (f"{RULE}keep = true\non = []\n", "watch.rule.on: is empty"),
        (f'{RULE}run = ["/no/such"]\n', "'/no/such' is not an executable file"),
        (f'{RULE}run = ["true"]\nrun_timeout = "2h"\n', "watch.rule.run_timeout: must be above 0 and at most 1h"),
        (f'{RULE}post = "ftp://x"\n', "watch.rule.post: must be https://…, env:NAME or file:PATH"),
        (f'{RULE}post = "http://example.org/"\n', "http:// is not encrypted; use https://, or set allow_http = true"),
        (f'{RULE}post = "http://127.0.0.1.example.org/"\n', "http:// is not encrypted"),
        (f'{RULE}post = "http://localhost@example.org/"\n', "http:// is not encrypted"),
        (f'{RULE}post = "env:HOOK"\n', "the environment variable HOOK is not set"),
        (f'{RULE}post = "file:hook"\n', "hook cannot be read (No such file or directory)"),
        (f'{RULE}format = "slack"\n', "watch.rule.format: slack needs post"),
        (f'{RULE}format = "pagerduty"\n', "watch.rule.format: pagerduty needs routing_key"),
        (f'{RULE}format = "pagerduty"\nrouting_key = "abc"\n', "routing_key: must be env:NAME or file:PATH"),
        ('[watch]\nheartbeat_url = "http://example.org/x"\n', "must be https://, or http:// of this machine"),
        ('[watch]\nheartbeat_url = "env:HB"\n', "watch.heartbeat_url: the environment variable HB is not set"),
    ],
)  # fmt: skip
def test_bad_rule_is_an_error_of_one_line_that_names_its_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert message in str(caught.value)
    assert str(caught.value).isprintable()


def test_secret_is_one_printable_line_of_a_private_regular_file(tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    text = f'{RULE}post = "file:hook"\n'
    hook.write_text("https://example.org/a\n")
    hook.chmod(0o600)
    assert loaded(tmp_path, text)[0].url() == "https://example.org/a"
    for content in ("", "a b", "https://x\nhttps://y", "http://example.org", "\x1b"):
        hook.write_text(content)
        with pytest.raises(ConfigError):
            loaded(tmp_path, text)
    hook.unlink()
    hook.symlink_to("/etc/hostname")
    with pytest.raises(ConfigError, match="cannot be read"):
        loaded(tmp_path, text)


def test_url_in_hosts_toml_is_shown_without_its_path(tmp_path: Path) -> None:
    (tmp_path / "hosts.toml").write_text(f'{NODES}[watch]\nheartbeat_url = "https://u:p@hc.example/abc-def?x=1"\n')
    config = load(str(tmp_path / "hosts.toml"), environ={})
    assert "https://hc.example/***" in config_text(config)
    assert "abc-def" not in config_text(config) + str(config_data(config))
