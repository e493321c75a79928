"""Key table: valid values in files and as text, and consistency with the structs."""

import math
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gconsole.config import schema
from gconsole.config.schema import BadValue

KEYS = schema.all_keys()
numbers = st.sampled_from([key for key in KEYS.values() if key.kind in (int, float)])


def refusal(call, value):
    with pytest.raises(BadValue) as caught:
        call(value)
    return caught.value.text + (f" (did you mean {caught.value.nearest}?)" if caught.value.nearest else "")


def test_every_section_and_key_is_documented():
    assert all(struct.__doc__ for struct in schema.sections().values())
    every = [*KEYS.values(), *schema.keys("nodes").values()]
    assert [str(key) for key in every if not key.help or (key.pattern and not key.form)] == []


def test_every_default_and_example_is_allowed():
    for key in [*KEYS.values(), *schema.keys("nodes").values()]:
        for value in (key.default, key.example):
            if value is not None:
                key.check(value)


def test_every_number_has_a_range():
    assert [str(key) for key in KEYS.values() if key.kind in (int, float) and None in (key.minimum, key.maximum)] == []


def test_node_entry_can_override_every_ssh_and_agent_key_except_max_connecting():
    expected = [key.name for key in KEYS.values() if key.section in ("ssh", "agent") and key.name != "max_connecting"]
    assert list(schema.overrides()) == expected
    assert not set(expected) & set(schema.keys("nodes"))


def test_config_sections_and_per_node_sections_are_as_listed():
    assert schema.per_node_sections() == {"ssh", "agent", "watch"}
    sections = ["cluster", "ssh", "agent", "console", "sessions", "hang", "watch", "health", "clock", "skew", "run"]
    assert list(schema.sections()) == sections


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ssh.port", "22", 'must be a whole number, is "22"'),
        ("ssh.port", True, "must be a whole number, is true"),
        ("ssh.port", 22.0, "must be a whole number, is 22.0"),
        ("ssh.port", 0, "must be 1 to 65535, is 0"),
        ("ssh.port", 10**40, "must be 1 to 65535, is a number beyond 64 bits"),
        ("ssh.user", 7, "must be text in quotes, is 7"),
        ("ssh.user", "", 'must be a user name, is ""'),
        ("ssh.user", "-oProxyCommand=x", 'must be a user name, is "-oProxyCommand=x"'),
        ("ssh.user", "a\n", 'must be a user name, is "a\\n"'),
        ("ssh.jump", "a,-b", 'must be [user@]host[:port], several separated by commas, is "a,-b"'),
        ("ssh.transport", "ssh", 'must be "asyncssh" or "local" or "openssh", is "ssh" (did you mean "openssh"?)'),
        ("ssh.transport", "x", 'must be "asyncssh" or "local" or "openssh", is "x"'),
        ("ssh.connect_timeout_s", "10", 'must be a number of seconds, is "10"'),
        ("ssh.connect_timeout_s", "1.5m", 'must be a number of seconds, e.g. 90, is "1.5m"'),
        ("ssh.connect_timeout_s", math.nan, "must be 0.1 to 3600, is nan"),
        ("ssh.connect_timeout_s", math.inf, "must be 0.1 to 3600, is inf"),
        ("agent.sample_interval_ms", 99, "must be 100 to 60000, is 99"),
        ("agent.ephemeral", 1, "must be true or false, is 1"),
        ("agent.ephemeral", {"a": 1}, "must be true or false, is a table"),
        ("agent.python", "-c evil", 'must be a command, is "-c evil"'),
        ("agent.cache_dir", "relative", 'must be an absolute path, or "", is "relative"'),
        ("agent.simulate_gpus", 65, "must be 0 to 64, is 65"),
        ("agent.run_as", ["self"], 'must be text in quotes, is ["self"]'),
    ],
)
def test_invalid_value_is_rejected_with_the_expected_form(name, value, message):
    assert refusal(KEYS[name].check, value) == message


def test_list_of_strings_is_checked_per_item():
    tags = schema.keys("nodes")["tags"]
    assert tags.check(["rack3", "zone=a/b"]) == ("rack3", "zone=a/b")
    assert refusal(tags.check, ["a", 3]) == "must be a list of texts in quotes, contains 3"
    assert refusal(tags.check, "a") == 'must be a list of texts in quotes, is "a"'
    assert refusal(tags.check, ["two words"]) == 'must be a word without spaces, is "two words"'


@pytest.mark.parametrize("chain", ["bastion", "ops@b.example:2222", "a,b:22,c", "[fe80::1]:22", "x@[::1]"])
def test_jump_hosts_may_be_chained_and_carry_users_and_ports(chain):
    assert KEYS["ssh.jump"].check(chain) == chain


@pytest.mark.parametrize("address", ["10.1.2.3", "::1", "fe80::1%eth0", "node1.example.org", "2001:db8::7"])
def test_an_address_may_be_a_name_or_of_either_ip_version(address):
    assert schema.keys("nodes")["address"].check(address) == address


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("agent.ephemeral", "Yes", True), ("agent.ephemeral", "0", False), ("ssh.port", " 2222 ", 2222),
        ("agent.buffer_bytes", "67_108_864", 67_108_864), ("agent.linger_s", "5", 5.0),
        ("agent.linger_s", "1e3", 1000.0), ("agent.linger_s", ".5", 0.5), ("ssh.user", "ops", "ops"),
    ],
)  # fmt: skip
def test_text_is_parsed_as_the_type_of_its_key(name, text, value):
    parsed = KEYS[name].parse(text)
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize("text", ["1e3", "0x16", "٢٢", "2 2", "22.0", "", "_22", "9" * 5000])
def test_text_that_is_not_an_integer_in_range_is_rejected(text):
    assert refusal(KEYS["ssh.port"].parse, text).startswith(("must be a whole number, is", "must be 1 to 65535, is"))


@pytest.mark.parametrize("name", ["ssh.port", "ssh.transport", "agent.linger_s"])
def test_non_utf_8_bytes_are_rejected(name):
    assert refusal(KEYS[name].parse, os.fsdecode(b"\xff")).startswith("must be ")


@given(numbers, st.data())
def test_any_number_in_range_survives_a_text_round_trip(key, data):
    strategy = st.integers if key.kind is int else st.floats
    value = data.draw(strategy(min_value=key.kind(key.minimum), max_value=key.kind(key.maximum)))
    parsed = key.parse(str(value))
    assert parsed == value
    assert type(parsed) is key.kind


@given(numbers, st.integers() | st.floats(allow_nan=False))
def test_any_out_of_range_number_given_as_text_is_rejected(key, value):
    if key.minimum <= value <= key.maximum:
        return
    assert "must be" in refusal(key.parse, str(value))


@given(st.sampled_from(list(KEYS.values())), st.text(max_size=20))
def test_any_text_parses_to_its_key_type_or_gives_one_error(key, text):
    try:
        value = key.parse(text)
    except BadValue as error:
        assert error.text.startswith("must be ")
        return
    assert type(value) is key.kind
    assert key.check(value) == value


@pytest.mark.slow
@given(st.recursive(st.none() | st.text() | st.integers() | st.floats() | st.booleans(), st.lists))
def test_value_of_any_size_is_displayed_in_one_short_line(value):
    assert len(schema.shown(value)) <= 80
    assert "\n" not in schema.shown(value)
