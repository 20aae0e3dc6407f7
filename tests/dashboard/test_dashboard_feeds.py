"""Live pages: made once for all who look, sent as what differs, ended when somebody may see something else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from haru.cluster_view import ChangeCounter
from haru.dashboard import feeds as feeds_module
from haru.dashboard.feeds import Feeds, TooManyViewers
from haru.dashboard.patches import applied, content_of, splices
from haru.dashboard.signin.viewer import EVERYTHING, Viewer
from haru.serving import WRITE
from virtual_time import run


@pytest.mark.parametrize("seed", range(40))
def test_splices_make_any_lines_of_any_others(seed: int) -> None:
    random = Random(seed)
    old = [random.choice("abcdef") for _ in range(random.randrange(30))]
    new = list(old)
    for _ in range(random.randrange(6)):
        at = random.randrange(len(new) + 1)
        new[at : at + random.randrange(3)] = [random.choice("abcxyz") for _ in range(random.randrange(3))]
    found = splices(old, new)
    assert applied(old, found) == new
    assert bool(found) == (old != new)


def test_splices_send_lines_that_differ_and_no_others() -> None:
    old = [f"line {number}" for number in range(3000)]
    new = list(old)
    new[10], new[2500] = "other", "another"
    assert splices(old, new) == [(2500, 0, 9, "another"), (10, 0, 7, "other")]
    assert splices(["a", "x = 12 px"], ["a", "x = 17 px"]) == [(1, 5, 1, "7")]
    assert splices(["é1"], ["é2"]) == [(0, 1, ["é2"])], "browsers count other characters otherwise"
    assert splices(old, ["first", *old]) == [(0, 0, ["first"])]


def test_content_is_what_stands_in_the_element_that_is_live() -> None:
    page = '<main id="main"><h1>x</h1><div id="content" data-version="3" data-live><div>a</div>\n</div>\n</main></body>'
    assert content_of(page) == "<div>a</div>\n"
    assert content_of("no such element") == "no such element"


class Watch:
    """A watch that always runs."""

    def __init__(self) -> None:
        self.changes = ChangeCounter()

    @asynccontextmanager
    async def viewing(self) -> AsyncIterator[None]:
        yield


class Page:
    """A page whose content is `text`; it counts how often it is made."""

    def __init__(self, text: str = "one\ntwo") -> None:
        self.text, self.status, self.made = text, 200, 0

    async def make(self) -> tuple[int, str]:
        self.made += 1
        return self.status, f'<div id="content">{self.text}</div></main>'


class Client:
    """A connection: what was written to it, and whether it takes more."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.reads, self.beats = True, 0
        self.may_see, self.asked = True, 0
        self.gone = asyncio.Event()

    def write(self, chunk: bytes) -> bool:
        if self.reads:
            size, _, rest = chunk.partition(b"\r\n")
            assert rest == rest[: int(size, 16)] + b"\r\n"
            self.beats += rest == b": \n\n\r\n"
            self.sent += [json.loads(line[6:]) for line in rest.decode().splitlines() if line.startswith("data: ")]
        return self.reads

    async def receive(self) -> Any:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.body" and not message["more_body"]:
            self.sent.append("end")

    async def unchanged(self) -> bool:
        self.asked += 1
        return self.may_see

    def follow(self, feeds: Feeds, page: Page, key: str = "page", session: str = "") -> asyncio.Task[None]:
        scope = {"extensions": {WRITE: self.write}}
        viewer = Viewer(EVERYTHING, unchanged=self.unchanged, session=session)
        return asyncio.create_task(feeds.follow(key, page.make, scope, self.receive, self.send, viewer))


def test_200_viewers_of_one_page_cost_one_rendering_for_each_change() -> None:
    async def scenario() -> None:
        watch, page = Watch(), Page()
        feeds, clients = Feeds(watch), [Client() for _ in range(200)]  # type: ignore[arg-type]
        tasks = [client.follow(feeds, page) for client in clients]
        await asyncio.sleep(2)
        assert page.made == 1
        page.text = "one\nthree"
        for _ in range(5):
            watch.changes.add()
        await asyncio.sleep(2)
        assert page.made == 2
        for client in clients:
            assert client.sent == [
                {"version": 0, "content": "one\ntwo"},
                {"version": 5, "lines": [[1, 1, 2, "hree"]]},
            ]
            client.gone.set()
        await asyncio.gather(*tasks)
        watch.changes.add()
        await asyncio.sleep(30)
        assert page.made == 2, "a page is made that nobody looks at"

    run(scenario())


def test_connection_ends_when_nobody_can_say_whether_it_may_go_on() -> None:
    class Broken(Client):
        async def unchanged(self) -> bool:
            raise RuntimeError("an answer that makes no sense")

    async def scenario() -> None:
        client = Broken()
        task = client.follow(Feeds(Watch()), Page(), session="s")  # type: ignore[arg-type]
        await asyncio.sleep(2 * feeds_module.CHECK_SECONDS)
        assert task.done() and client.sent[-2:] == [{"changed": True}, "end"]

    run(scenario())


def test_connections_that_come_at_once_are_no_more_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds_module, "MOST_VIEWERS", 3)

    class Slow(Client):
        async def send(self, message: Any) -> None:
            await asyncio.sleep(0.1)

    async def scenario() -> None:
        feeds, clients = Feeds(Watch()), [Slow() for _ in range(5)]  # type: ignore[arg-type]
        tasks = [client.follow(feeds, Page()) for client in clients]
        await asyncio.sleep(1)
        refused = [task for task in tasks if task.done()]
        assert [type(task.exception()) for task in refused] == [TooManyViewers] * 2
        for client in clients:
            client.gone.set()
        await asyncio.wait(tasks)
        again = clients[0].follow(feeds, Page())
        await asyncio.sleep(1)
        assert again.exception() is None

    run(scenario())


def test_change_that_does_not_show_on_a_page_is_not_sent() -> None:
    async def scenario() -> None:
        watch, page, client = Watch(), Page(), Client()
        task = client.follow(Feeds(watch), page)  # type: ignore[arg-type]
        await asyncio.sleep(1)
        watch.changes.add()
        await asyncio.sleep(2)
        assert page.made == 2 and len(client.sent) == 1
        client.gone.set()
        await task

    run(scenario())


def test_page_that_follows_the_time_is_made_anew_without_a_change() -> None:
    async def scenario() -> None:
        watch, page, client = Watch(), Page("<p data-tail>"), Client()
        task = client.follow(Feeds(watch), page)  # type: ignore[arg-type]
        await asyncio.sleep(12)
        assert page.made == 3
        client.gone.set()
        await task

    run(scenario())


def test_viewer_that_reads_too_slowly_gets_the_whole_page_later() -> None:
    async def scenario() -> None:
        watch, page, client, other = Watch(), Page(), Client(), Client()
        feeds = Feeds(watch)  # type: ignore[arg-type]
        tasks = [client.follow(feeds, page), other.follow(feeds, page)]
        await asyncio.sleep(1)
        client.reads = False
        for text in ("a", "b", "c"):
            page.text = text
            client.reads = text == "c"
            watch.changes.add()
            await asyncio.sleep(2)
        assert client.sent[-1] == {"version": 3, "content": "c"} and len(client.sent) == 2
        assert other.sent[-1] == {"version": 3, "lines": [[0, 0, 1, "c"]]} and len(other.sent) == 4
        for each in (client, other):
            each.gone.set()
        await asyncio.gather(*tasks)

    run(scenario())


def test_connection_ends_once_its_viewer_may_see_something_else() -> None:
    async def scenario() -> None:
        client, page = Client(), Page()
        task = client.follow(Feeds(Watch()), page)  # type: ignore[arg-type]
        await asyncio.sleep(feeds_module.CHECK_SECONDS + 1)
        assert not task.done()
        client.may_see = False
        await asyncio.sleep(feeds_module.CHECK_SECONDS + 1)
        assert task.done() and client.sent[-2:] == [{"changed": True}, "end"]

    run(scenario())


def test_connections_of_one_person_are_checked_together_and_end_together() -> None:
    async def scenario() -> None:
        feeds, page, clients = Feeds(Watch()), Page(), [Client() for _ in range(3)]  # type: ignore[arg-type]
        tasks = [each.follow(feeds, page, session=name) for each, name in zip(clients, "aab", strict=True)]
        await asyncio.sleep(2 * feeds_module.CHECK_SECONDS + 1)
        assert [each.asked for each in clients] == [2, 0, 2]
        clients[0].may_see = False
        await asyncio.sleep(feeds_module.CHECK_SECONDS + 1)
        assert [task.done() for task in tasks] == [True, True, False]
        # Whoever comes again is asked about again; whoever has gone is not.
        again = Client()
        tasks += [again.follow(feeds, page, session="a")]
        clients[2].gone.set()
        await asyncio.sleep(2 * feeds_module.CHECK_SECONDS + 1)
        assert (again.asked, clients[2].asked) == (2, 3) and not tasks[3].done()
        again.gone.set()
        await asyncio.gather(*tasks)

    run(scenario())


def test_only_connections_on_which_nothing_is_said_get_a_heartbeat() -> None:
    async def scenario() -> None:
        watch, feeds = Watch(), None
        watch = Watch()
        feeds = Feeds(watch)  # type: ignore[arg-type]
        quiet, lively, still, page = Client(), Client(), Page(), Page()
        tasks = [quiet.follow(feeds, still, "still"), lively.follow(feeds, page)]
        for number in range(9):
            page.text = f"one\n{number}"
            watch.changes.add()
            await asyncio.sleep(10)
        assert (quiet.beats, lively.beats) == (2, 0) and len(lively.sent) == 9
        for each in (quiet, lively):
            each.gone.set()
        await asyncio.gather(*tasks)

    run(scenario())


def test_gone_page_is_told_and_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds_module, "MOST_VIEWERS", 1)

    async def scenario() -> None:
        watch, client, page = Watch(), Client(), Page()
        feeds = Feeds(watch)  # type: ignore[arg-type]
        task = client.follow(feeds, page)
        await asyncio.sleep(1)
        page.status = 404
        watch.changes.add()
        await asyncio.sleep(2)
        assert client.sent[-1] == {"version": 1, "gone": True}
        with pytest.raises(TooManyViewers):
            await Client().follow(feeds, page, "another")
        feeds.stop()
        await task
        assert client.sent[-1] == "end"

    run(scenario())
