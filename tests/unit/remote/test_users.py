"""User names, including a slow or failing directory service."""

import threading
from types import SimpleNamespace

import pytest

from gconsole_remote.proc import users
from gconsole_remote.proc.users import Users


@pytest.fixture
def passwd(tmp_path):
    path = tmp_path / "passwd"
    path.write_text("root:x:0:0::/:/bin/sh\n# comment\nbroken\nalice:x:1000:1000::/:/bin/sh\n")
    return str(path)


def test_local_user_names_need_no_directory_lookup(passwd):
    assert (Users(passwd).name(1000), Users(passwd).name(0)) == ("alice", "root")


def test_a_uid_without_a_name_has_none(passwd):
    assert Users(passwd).name(4_000_000_000) is None


def test_hanging_directory_lookup_times_out_and_its_answer_is_used_later(passwd, monkeypatch):
    pwd = pytest.importorskip("pwd")
    answer = threading.Event()
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: answer.wait(10) and SimpleNamespace(pw_name=f"user{uid}"))
    monkeypatch.setattr(users, "LOOKUP_TIMEOUT_S", 0.01)
    names = Users(passwd)

    assert names.name(2001) is None
    assert names.name(2002) is None
    answer.set()
    for thread in [thread for thread in threading.enumerate() if thread.name == "gconsole-user"]:
        thread.join(10)

    assert (names.name(2001), names.name(2002)) == ("user2001", "user2002")
