"""[clock] presets: single keys override them, costly values give a warning, invalid values an error."""

import pytest

from gconsole.config import ConfigError, load

NODES = '[[nodes]]\nhosts = "a,b"\n'


def loaded(tmp_path, text: str, environ=None, flags=None):
    path = tmp_path / "hosts.toml"
    path.write_text(text + NODES)
    return load(str(path), environ=environ or {}, flags=flags or {})


@pytest.mark.parametrize(
    ("preset", "cadence_us", "window_s", "spacing_us", "period_ms", "peers", "cap_pct"),
    [
        ("low", 20_000, 8, 200, 200, 6, 5),
        ("default", 5000, 4, 100, 100, 6, 15),
        ("high", 800, 4, 50, 50, 8, 60),
        ("debug", 1000, 2, 100, 100, 6, 60),
    ],
)
def test_preset_sets_the_clock_keys_that_are_unset(
    tmp_path, preset, cadence_us, window_s, spacing_us, period_ms, peers, cap_pct
):
    clock = loaded(tmp_path, f'[clock]\npreset = "{preset}"\n').clock

    assert (clock.probe_cadence_us, clock.probe_window_s, clock.packet_spacing_us) == (cadence_us, window_s, spacing_us)
    assert (clock.snapshot_period_ms, clock.peers, clock.cpu_cap_pct) == (period_ms, peers, cap_pct)


@pytest.mark.parametrize("preset", ["low", "default", "high", "debug"])
def test_presets_load_without_warnings(tmp_path, preset):
    assert loaded(tmp_path, f'[clock]\npreset = "{preset}"\n').warnings == ()


def test_explicit_key_overrides_the_preset_even_with_the_default_value(tmp_path):
    clock = loaded(tmp_path, '[clock]\npreset = "low"\nprobe_cadence_us = 5000\n').clock

    assert (clock.probe_cadence_us, clock.probe_window_s) == (5000, 8)


def test_precedence_is_flag_then_environment_then_file_then_preset(tmp_path):
    text = '[clock]\npreset = "low"\npeers = 4\ncpu_cap_pct = 7\nprobe_window_s = 6\n'
    environ = {"GCONSOLE_CLOCK_CPU_CAP_PCT": "8", "GCONSOLE_CLOCK_PROBE_WINDOW_S": "5"}

    clock = loaded(tmp_path, text, environ, {"clock.probe_window_s": "4"}).clock

    assert (clock.peers, clock.cpu_cap_pct, clock.probe_window_s, clock.packet_spacing_us) == (4, 8, 4, 200)


def test_the_origin_of_a_presets_value_is_the_preset(tmp_path):
    config = loaded(tmp_path, '[clock]\npreset = "high"\n')

    assert {str(setting.origin) for setting in config.settings if setting.key == "clock.peers"} == {"preset high"}


@pytest.mark.parametrize(("cadence_us", "spacing_us"), [(200, 50), (399, 99), (400, 100), (5000, 100)])
def test_default_spacing_fits_a_short_cadence(tmp_path, cadence_us, spacing_us):
    clock = loaded(tmp_path, f"[clock]\nprobe_cadence_us = {cadence_us}\n").clock

    assert (clock.probe_cadence_us, clock.packet_spacing_us) == (cadence_us, spacing_us)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("probe_cadence_us = 600", "hosts.toml:2: clock.probe_cadence_us: 600 is unusual (800 to 20000 is "
         "recommended): costs more CPU than it improves the bound; the CPU cap will lengthen it; about 106.5 % of a "
         "core on every node while probes run"),
        ("peers = 12", "hosts.toml:2: clock.peers: 12 is unusual (4 to 8 is recommended): each peer costs CPU on both "
         "nodes; about 25.6 % of a core on every node while probes run"),
        ("probe_window_s = 30", "hosts.toml:2: clock.probe_window_s: 30 is unusual (2 to 8 is recommended): clock "
         "drift varies by more than the probe noise within a window"),
    ],
)  # fmt: skip
def test_value_outside_the_recommended_range_gives_a_warning_with_its_cost(tmp_path, monkeypatch, line, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.toml").write_text(f"[clock]\n{line}\n{NODES}")

    assert load("hosts.toml", environ={}).warnings == (message,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[clock]\nprobe_cadence_us = 5\n", "hosts.toml:2: clock.probe_cadence_us: must be 200 to 1000000, is 5"),
        ("[clock]\nprobe_cadence_us = 800\npacket_spacing_us = 300\n",
         "hosts.toml:3: clock.packet_spacing_us: three packets 300 µs apart need a cadence of 1200 µs or more, "
         "it is 800"),
        ("[clock]\nsnapshot_period_ms = 500\n",
         "hosts.toml:2: clock.snapshot_period_ms: a window of 4 s has fewer than 10 snapshots 500 ms apart"),
        ("[clock]\npeers = 5\n", "hosts.toml:2: clock.peers: must be even (rings through all nodes), is 5"),
        ('[clock]\ninterface = "eth0; rm"\n', "hosts.toml:2: clock.interface: must be an address, interface names "
         'separated by commas, or "", is "eth0; rm"'),
        ('[clock]\npreset = "hihg"\n', 'hosts.toml:2: clock.preset: must be "debug" or "default" or "high" or "low", '
         'is "hihg" (did you mean "high"?)'),
        ("[skew]\nmax_ms = 0\n", "hosts.toml:2: skew.max_ms: must be 0.001 to 60000, is 0"),
    ],
)  # fmt: skip
def test_unusable_value_is_an_error_with_its_position(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.toml").write_text(text + NODES)

    with pytest.raises(ConfigError) as caught:
        load("hosts.toml", environ={})
    assert str(caught.value) == message


def test_clock_output_dir_is_relative_to_the_file_and_empty_by_default(tmp_path):
    assert loaded(tmp_path, "").clock.output_dir == ""
    assert loaded(tmp_path, '[clock]\noutput_dir = "clocks"\n').clock.output_dir == str(tmp_path / "clocks")
