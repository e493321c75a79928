"""Every error in a hosts.toml is reported on one line with its location, its cause and a suggestion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gconsole.config import ConfigError, load

NODES = '[[nodes]]\nhosts = "a"\n'


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working directory, so that errors begin with the relative name `hosts.toml`."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(target: str = "hosts.toml") -> str:
    with pytest.raises(ConfigError) as caught:
        load(target, environ={})
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[shh]\nuser = "x"\n', "hosts.toml:1: shh: unknown section (did you mean [ssh]?)"),
        ("[clocky]\nrate = 1\n", "hosts.toml:1: clocky: unknown section (did you mean [clock]?)"),
        ('[[node]]\nhosts = "a"\n', "hosts.toml:1: node: unknown section (did you mean [[nodes]]?)"),
        ('\nuser = "x"\n', "hosts.toml:2: user: unknown key outside of a section (did you mean user in [ssh]?)"),
        ('[ssh]\n# usr\nusr = "x"\n', "hosts.toml:3: ssh.usr: unknown key (did you mean user?)"),
        ("[ssh]\nlinger_s = 1\n", "hosts.toml:2: ssh.linger_s: unknown key (did you mean linger_s in [agent]?)"),
        ('ssh.usr = "x"\n', "hosts.toml:1: ssh.usr: unknown key (did you mean user?)"),
        ('ssh = { port = 22,\n usr = "x" }\n', "hosts.toml:2: ssh.usr: unknown key (did you mean user?)"),
        ("[ssh]\nzzz = 1\n", "hosts.toml:2: ssh.zzz: unknown key"),
        ("[ssh.user]\nx = 1\n", "hosts.toml:1: ssh.user: must be text in quotes, is a table"),
        ("ssh = 5\n", "hosts.toml:1: ssh: must be a section, [ssh], is 5"),
        ("[[ssh]]\nport = 5\n", "hosts.toml:1: ssh: must be a section, [ssh], is [a table]"),
        ('[ssh]\nport = "22"\n', 'hosts.toml:2: ssh.port: must be a whole number, is "22"'),
        ("[agent]\nsample_interval_ms = 5\n", "hosts.toml:2: agent.sample_interval_ms: must be 100 to 60000, is 5"),
        ("[agent]\nlinger_s = nan\n", "hosts.toml:2: agent.linger_s: must be 0 to 604800, is nan"),
        (
            '[ssh]\nhost_key_policy = "accept_new"\n',
            'hosts.toml:2: ssh.host_key_policy: must be "accept-new" or "strict", is "accept_new" '
            '(did you mean "accept-new"?)',
        ),
        (
            '[ssh]\nidentity_file = "~no-such-user-here/id"\n',
            'hosts.toml:2: ssh.identity_file: home directory does not exist: "~no-such-user-here/id"',
        ),
        ('[nodes]\nhosts = "a"\n', "hosts.toml:1: nodes: must be a list of entries; write [[nodes]] with two brackets"),
        ('nodes = ["a"]\n', 'hosts.toml:1: nodes: must be [[nodes]] entries, is ["a"]'),
        ("nodes = 7\n", "hosts.toml:1: nodes: must be [[nodes]] entries, is 7"),
        ("", 'hosts.toml: nodes: no nodes; add [[nodes]] with hosts = "node[01-04]"'),
        (f"{NODES}[[nodes]]\nport = 1\n", "hosts.toml:3: nodes.hosts: is missing; add "
         'hosts = "node[01-04]"'),
        (f'{NODES}[[nodes]]\nport = 1\nhost = "b"\n', "hosts.toml:5: nodes.host: unknown key (did you mean hosts?)"),
        (f"{NODES}max_connecting = 4\n",
         "hosts.toml:3: nodes.max_connecting: unknown key (did you mean max_connecting in [ssh]?)"),
        (f'{NODES}[[nodes]]\nhosts = "b"\nport = 70000\n', "hosts.toml:5: ssh.port: must be 1 to 65535, is 70000"),
        (f"{NODES}tags = [\n 'x',\n 3]\n", "hosts.toml:3: nodes.tags: must be a list of texts in quotes, contains 3"),
        (f"{NODES}[watch]\nlocals = ['a.step()']\n",
         'hosts.toml:4: watch.locals: must be the name of a variable, or of an attribute: self.step, is "a.step()"'),
        (f"{NODES}[watch]\nlocals = ['.step']\n",
         'hosts.toml:4: watch.locals: must be the name of a variable, or of an attribute: self.step, is ".step"'),
        (f"{NODES}[watch]\nlocals = [{', '.join(repr(f'v{n}') for n in range(17))}]\n",
         "hosts.toml:4: watch.locals: must have at most 16 items, has 17"),
        (f"{NODES}locals = ['step']\n", "hosts.toml:3: nodes.locals: unknown key (did you mean locals in [watch]?)"),
        (f"{NODES}process_filter = 'TEAM=x'\n",
         'hosts.toml:3: nodes.process_filter: must be env:KEY=VALUE, is "TEAM=x"'),
        ("[[nodes]]\nhosts = ['a']\n", 'hosts.toml:2: nodes.hosts: must be text in quotes, is ["a"]'),
        ("[[nodes]]\nhosts = ''\n", "hosts.toml:2: nodes.hosts: empty node set"),
        ("[[nodes]]\nhosts = 'n[]'\n", "hosts.toml:2: nodes.hosts: the range [] is empty"),
        ("[[nodes]]\n\nhosts = 'n[9-1]'\n", 'hosts.toml:3: nodes.hosts: invalid range "9-1" (start > end)'),
        ("[[nodes]]\nhosts = 'n[0-999999999]'\n",
         'hosts.toml:2: nodes.hosts: "n[0-999999999]" names more than 16,384 nodes'),
        (f"{NODES}[[nodes]]\nhosts = 'b,b'\n", 'hosts.toml:4: nodes.hosts: b occurs twice in "b,b"'),
        (f"{NODES}[[nodes]]\nport = 1\nhosts = 'b,a'\n",
         "hosts.toml:5: nodes.hosts: duplicate node a (first at hosts.toml:2)"),
        ("[[nodes]]\nhosts='n[1-8]'\n[[nodes]]\nhosts='n[7-9]'\n",
         "hosts.toml:4: nodes.hosts: duplicate nodes n[7-8] (first at hosts.toml:2)"),
        ("[[nodes]]\nhosts='a[1-9000]'\n[[nodes]]\nhosts='b[1-9000]'\n",
         "hosts.toml:4: nodes.hosts: more than 16,384 nodes up to here"),
        ("[[nodes]]\nhosts='a[1-2]'\naddress='::1'\n",
         "hosts.toml:3: nodes.address: an address belongs to one node, this entry has 2"),
        (f"{NODES}address = '10.0.0.7:2222'\n",
         'hosts.toml:3: nodes.address: has a port; write address = "10.0.0.7" and port = 2222'),
        (f"{NODES}address = '-x'\n", 'hosts.toml:3: nodes.address: must be a host name or an address, is "-x"'),
        ("[ssh]\nuser = \n", "hosts.toml:2: not valid TOML: invalid value"),
        ("[ssh]\nport = 1\nport = 2\n", "hosts.toml:3: not valid TOML: cannot overwrite a value"),
        ("a = " + "[" * 2000, "hosts.toml: not valid TOML: lists or tables are nested too deeply"),
        ("a = " + "[" * 390 + "]" * 390, "hosts.toml:1: a: unknown key outside of a section"),
    ],
)  # fmt: skip
def test_config_error_is_one_line_with_its_file_and_line(here, text, message):
    (here / "hosts.toml").write_text(text)
    assert refusal() == message


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\xef\xbb\xbf[ssh]\n", "hosts.toml:1: begins with a byte order mark; save the file as UTF-8 without one"),
        (b"[ssh]\n# gr\xfc\xdfe\n", "hosts.toml:2: byte 0xfc is not UTF-8; save the file as UTF-8"),
        ("[ssh]\n".encode("utf-16"), "hosts.toml:1: byte 0xff is not UTF-8; save the file as UTF-8"),
        (b"[ssh]\r\n\r\nusr = 1\r\n", "hosts.toml:3: ssh.usr: unknown key (did you mean user?)"),
        (b"[ssh]\n\x00", "hosts.toml:2: not valid TOML: invalid statement"),
        (b"#" * (16 << 20) + b"#", "hosts.toml: is larger than the limit for hosts.toml, 16.0 MiB"),
    ],
    ids=["byte order mark", "latin-1", "utf-16", "windows line ends", "nul", "huge"],
)
def test_undecodable_or_oversized_file_is_rejected_with_a_reason(here, raw, message):
    (here / "hosts.toml").write_bytes(raw)
    assert refusal() == message


def test_integer_of_thousands_of_digits_is_rejected_without_a_traceback(here):
    (here / "hosts.toml").write_text(f"a = {'1' * 5000}")
    assert refusal().startswith("hosts.toml: not valid TOML: exceeds the limit")


def test_missing_file_error_suggests_the_nearest_file_name(here):
    assert refusal() == "hosts.toml: file not found; create one with: gconsole config init FILE"
    (here / "host.toml").write_text(NODES)
    assert (
        refusal() == "hosts.toml: file not found; create one with: gconsole config init FILE (did you mean host.toml?)"
    )
    assert (
        refusal("no/such/hosts.toml")
        == "no/such/hosts.toml: file not found; create one with: gconsole config init FILE"
    )


def test_folder_given_as_the_file_is_rejected(here):
    (here / "pod").mkdir()
    (here / "pod" / "hosts.toml").write_text(NODES)
    assert refusal("./pod") == "./pod: is a folder, not a file (did you mean pod/hosts.toml?)"


def test_unreadable_file_is_reported_with_the_reason(here):
    (here / "hosts.toml").symlink_to("hosts.toml")
    assert refusal() == "hosts.toml: cannot be read (Too many levels of symbolic links)"
    (here / "plain").write_text("")
    assert refusal("plain/hosts.toml") == "plain/hosts.toml: cannot be read (Not a directory)"
    assert refusal("nul\0.toml") == "nul\\x00.toml: cannot be read (embedded null byte)"


def test_terminal_escapes_in_the_file_are_escaped_in_the_error(here):
    (here / "hosts.toml").write_text('["\\u001b[2J\\n"]\nx = 1\n')
    assert refusal() == "hosts.toml:1: \\x1b[2J\\n: unknown section"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_arbitrary_text_gives_a_one_line_printable_error(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_text(text, newline="")
    with pytest.raises(ConfigError) as caught:
        load(str(path), environ={})
    assert str(caught.value).isprintable()
    assert str(caught.value).startswith(str(path))


def test_errors_of_the_environment_the_flags_and_the_file_are_reported_at_once(here):
    (here / "hosts.toml").write_text('[ssh]\nusr = "x"\n[[nodes]]\nhosts = "node[1-"\n')
    flags = {"agent.nosuch": "1", "ssh.port": "abc"}
    with pytest.raises(ConfigError) as caught:
        load("hosts.toml", flags=flags, environ={"GCONSOLE_SSH_PORT": "x"})
    places = [line.partition(": ")[0] for line in str(caught.value).splitlines()]
    assert places == ["environment", "--set", "flag", "hosts.toml:2", "hosts.toml:4"]
    with pytest.raises(ConfigError, match=r"agent\.nosuch") as caught:
        load("node[1-", flags=flags, environ={})
    assert len(str(caught.value).splitlines()) == 3


def test_errors_of_a_file_are_reported_by_line(here):
    (here / "hosts.toml").write_text(
        '[[watch.rule]]\non = 5\n\n[[node]]\nhosts = "a"\n\n[[nodes]]\nhosts = "b[1-"\n\n[ssh]\nport = "x"\nusr = 1\n'
    )
    lines = [int(line.split(":")[1]) for line in refusal().splitlines()]
    assert lines == sorted(lines) and len(lines) >= 5
