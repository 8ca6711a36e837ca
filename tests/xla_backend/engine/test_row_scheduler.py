"""Rows that join, leave, wait and share memory: every text is the one that it would be alone."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.xla_backend.engine.fake_functions import END, FakeFunctions, pool, text_alone
from xla_backend.interface.options import GenerationOptions
from xla_backend.interface.timing import Stopwatch
from xla_backend.kernels.attention.kv_blocks import BLOCK
from xla_backend.prediction.prefixes import cached_tokens, root_name
from xla_backend.rows.pool import Pool, Row
from xla_backend.rows.prefix_store import PrefixStore
from xla_backend.rows.scheduler import MAX_ROWS, ROW_COUNTS, RowScheduler


@dataclass(eq=False)
class Asked:
    """A request for a row."""

    row: Row
    wants: Callable[[Row], bool]
    begins: Callable[[], bool]
    watch: Stopwatch = field(default_factory=lambda: Stopwatch("queue"))
    drafts: int = 0
    rows_at_most: int = 0
    error: Exception | None = None
    is_stopped: bool = False
    is_admitted: bool = False

    def admit(self) -> bool:
        self.is_admitted = self.is_admitted or self.begins()
        return self.is_admitted

    def read(self) -> None: ...

    def write(self) -> bool:
        return self.wants(self.row)


@dataclass
class Crowd:
    """Requests for the rows of a pool, on the clock of its functions."""

    pool: Pool
    functions: FakeFunctions = field(default_factory=FakeFunctions)
    requests: list[Asked] = field(default_factory=list)
    ended: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rows = RowScheduler(self.pool, self.functions, lambda: self.functions.now)

    def ask(
        self,
        prompt: list[int],
        most: int = 8,
        salt: str = "all",
        wants: Callable[[Row], bool] = lambda row: True,
        begins: Callable[[], bool] = lambda: True,
    ) -> Asked:
        """A request for a text."""
        row = Row(list(prompt), len(prompt), salt, GenerationOptions(max_new_tokens=most))
        request = Asked(row, wants, begins)
        self.requests.append(request)
        self.rows.join(request)
        return request

    def round(self) -> list[Asked]:
        ended = self.rows.round()
        self.ended += ended
        return ended

    def stop(self, request: Asked) -> None:
        """Removes its row, unless that has ended."""
        request.is_stopped = True
        if request not in self.ended:
            self.rows.remove(request)
            self.ended.append(request)

    def run(self) -> None:
        """To the end; fails where that does not come."""
        for _ in range(20_000):
            if not self.rows.goes_on:
                return
            self.round()
        pytest.fail("the rows never end")


def text(request: Asked) -> list[int]:
    return request.row.token_ids[request.row.prompt_tokens :]


def prompt(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(END + 1, 90), k=length)


def test_a_text_alone_is_what_the_model_says_in_chunks_that_last_as_they_should() -> None:
    crowd = Crowd(pool(64))
    request = crowd.ask(prompt(150), most=40)
    crowd.run()
    assert text(request) == text_alone(prompt(150), 40)
    assert request.row.is_done and crowd.ended == [request]

    crowd = Crowd(pool(64), FakeFunctions(seconds=0.01))
    request = crowd.ask(prompt(3, 8), most=40)
    lengths: list[int] = []
    while crowd.rows.goes_on:
        before = request.row.generated
        crowd.round()
        lengths.append(request.row.generated - before)
    assert text(request) == text_alone(prompt(3, 8), 40)
    assert lengths[0] == 1  # the first token at once
    assert max(lengths) == 8  # 0.08 s


@pytest.mark.parametrize("seed", range(20))
def test_texts_of_a_crowd_are_those_alone(seed: int) -> None:
    """Ten arrivals each: joins, leaves, stops, shared beginnings, too little memory for all.

    In every other one rows have states.
    """
    dice = random.Random(seed)
    crowd = Crowd(pool(dice.choice([34, 40, 80]), state_bytes=16 * (seed % 2)))
    crowd.functions.in_memory = set(dice.choice([(1,), (1, 4), ROW_COUNTS]))
    beginnings = [prompt(dice.randint(1, 300), n) for n in range(3)]
    for n in range(10):
        for _ in range(dice.randint(0, 6)):
            crowd.round()
        before = dice.choice([[], *beginnings, *(s.row.token_ids for s in crowd.requests)])
        asked = before[: dice.randint(0, len(before))] + prompt(dice.randint(1, 90), 100 + n)
        crowd.ask(asked, most=dice.randint(1, 70), salt=dice.choice("ab"))
        if dice.random() < 0.2:
            crowd.stop(crowd.requests[dice.randrange(n + 1)])
    crowd.run()
    assert len(crowd.ended) == len(crowd.requests) == 10
    for request in crowd.requests:
        row = request.row
        alone = text_alone(row.token_ids[: row.prompt_tokens], row.options.max_new_tokens)
        assert request.error is None
        assert text(request) == (alone[: row.generated] if request.is_stopped else alone)
    memory, prefixes = crowd.pool.memory, crowd.pool.prefixes
    assert prefixes.nodes <= memory.used == prefixes.unused() <= memory.limit
    prefixes.clear()
    assert memory.used == prefixes.tokens == 0


def test_who_comes_later_joins_between_two_chunks_while_there_are_rows() -> None:
    crowd = Crowd(pool(64))
    first = crowd.ask(prompt(5, 5), most=60)
    sizes: list[int] = []
    crowd.functions.on_call = lambda name, rows: sizes.append(rows) if name == "decode" else None
    crowd.round()
    crowd.round()
    second = crowd.ask(prompt(5, 2), most=60)
    crowd.run()
    assert sizes[0] == 1 and 2 in sizes and sizes[-1] == 1
    assert text(first) == text_alone(prompt(5, 5), 60)
    assert text(second) == text_alone(prompt(5, 2), 60)
    assert second.rows_at_most == 2

    crowd = Crowd(pool(400))
    order: list[int] = []
    for n in range(MAX_ROWS + 3):
        crowd.ask(prompt(3, n), most=5, begins=lambda n=n: order.append(n) is None)
    crowd.round()
    assert order == list(range(MAX_ROWS))
    crowd.run()
    assert order == list(range(MAX_ROWS + 3))


def test_a_long_prompt_stops_nobody() -> None:
    """Others are read and written between its chunks, and it is read nevertheless."""
    crowd = Crowd(pool(200, 128))
    talker = crowd.ask(prompt(4, 7), most=100)
    crowd.round()
    long = crowd.ask(prompt(1600, 2), most=2)
    short = crowd.ask(prompt(4, 3), most=2)
    calls: list[str] = []
    crowd.functions.on_call = lambda name, rows: calls.append(name)
    for _ in range(3):
        crowd.round()
    assert short in crowd.ended and not long.row.is_read
    while talker not in crowd.ended:
        crowd.round()
    reads = "".join("r" if name == "read" else "d" for name in calls)
    assert reads.count("r") > 30 and "rr" not in reads  # text comes between any two chunks
    crowd.run()
    assert text(long) == text_alone(prompt(1600, 2), 2)


def test_a_row_that_is_stopped_or_may_not_begin_is_free() -> None:
    crowd = Crowd(pool(64))
    request = crowd.ask(prompt(3, 5), most=1000)
    crowd.round()
    crowd.stop(request)
    assert not crowd.rows.goes_on

    crowd = Crowd(pool(64))
    calls: list[str] = []
    crowd.functions.on_call = lambda name, rows: calls.append(name)
    refused = crowd.ask(prompt(3), begins=lambda: False)
    crowd.run()
    assert crowd.ended == [refused] and not calls and not text(refused)


def test_without_functions_for_more_rows_they_alternate_and_more_are_asked_for() -> None:
    crowd = Crowd(pool(64))
    crowd.functions.in_memory = {1}
    requests = [crowd.ask(prompt(3, n), most=6) for n in (1, 2, 3)]
    crowd.run()
    assert crowd.functions.asked[:2] == [MAX_ROWS, 4], "those that serve any number come first"
    assert [text(s) for s in requests] == [text_alone(prompt(3, n), 6) for n in (1, 2, 3)]


def test_short_prompts_are_read_together_and_long_ones_by_themselves() -> None:
    crowd = Crowd(pool(64))
    reads: list[int] = []
    crowd.functions.on_call = lambda name, rows: reads.append(rows) if name == "read" else None
    lengths = (3, 5, 8, 4, 44, 1, 16)
    requests = [crowd.ask(prompt(length, length), most=6) for length in lengths]
    crowd.round()
    assert [request.row.generated for request in requests] == [1, 1, 1, 0, 0, 0, 0]
    crowd.run()
    # A chunk has 16 places: 3 + 5 + 8; 4; 16 of 44; 1; 16; 16 of 44; the rest of it.
    assert reads == [3, 1, 1, 1, 1, 1, 1]
    for request, length in zip(requests, lengths, strict=True):
        assert text(request) == text_alone(prompt(length, length), 6)

    many = [crowd.ask(prompt(1, 400 + number), most=6) for number in range(MAX_ROWS)]
    del reads[:]
    crowd.round()
    assert reads == [MAX_ROWS] and all(request.row.generated == 1 for request in many)
    crowd.run()
    assert [text(s) for s in many] == [text_alone(prompt(1, 400 + n), 6) for n in range(MAX_ROWS)]


def test_an_error_ends_the_rows_that_it_concerns_alone() -> None:
    crowd = Crowd(pool(64))
    crowd.functions.in_memory = {1}
    bad, good = crowd.ask(prompt(3, 1), most=5), crowd.ask(prompt(3, 2), most=5)
    calls: list[str] = []

    def fail_once(name: str, rows: int) -> None:
        calls.append(name)
        if calls.count("decode") == 1 and name == "decode":
            raise MemoryError

    crowd.functions.on_call = fail_once
    crowd.run()
    assert isinstance(bad.error, MemoryError) and good.error is None
    assert text(good) == text_alone(prompt(3, 2), 5)

    crowd = Crowd(pool(64))

    def gone(row: Row) -> bool:
        raise OSError("nobody reads")

    def refused() -> bool:
        raise OSError("nobody asks")

    good = crowd.ask(prompt(3, 2), most=5)
    bad = [crowd.ask(prompt(3, 1), wants=gone), crowd.ask(prompt(3, 1), begins=refused)]
    crowd.run()
    assert [str(request.error) for request in bad] == ["nobody reads", "nobody asks"]
    assert text(good) == text_alone(prompt(3, 2), 5)
    assert crowd.pool.memory.used == crowd.pool.prefixes.nodes == crowd.pool.prefixes.unused()


class TestPrefixes:
    """What a row need not read."""

    def test_the_next_turn_reads_what_is_new_unless_its_salt_is_another(self) -> None:
        crowd = Crowd(pool(64))
        first = crowd.ask(prompt(100), most=20, salt="a")
        crowd.run()
        known = len(first.row.token_ids) - 1
        second = crowd.ask(first.row.token_ids + prompt(5, 9), most=3, salt="a")
        crowd.run()
        assert second.row.reused == known
        assert text(second) == text_alone(first.row.token_ids + prompt(5, 9), 3)

        crowd = Crowd(pool(64))
        crowd.ask(prompt(100), salt="a")
        crowd.run()
        other = crowd.ask(prompt(100), salt="b")
        crowd.run()
        assert other.row.reused == 0

        crowd = Crowd(pool(64))
        for _ in range(2):
            request = crowd.ask(prompt(100), salt="")
            crowd.run()
            assert text(request) == text_alone(prompt(100), 8)
            assert request.row.reused == crowd.pool.memory.used == 0

    def test_branches_live_side_by_side(self) -> None:
        """An edited message, a retry and a system prompt for many reuse what is still true."""
        crowd = Crowd(pool(64))
        system = prompt(BLOCK + 10)
        branches = [system + prompt(30, n) for n in range(4)]
        for branch in branches:
            crowd.ask(branch, most=2)
            crowd.run()
        again = [crowd.ask(branch, most=2) for branch in branches]
        crowd.run()
        for request, branch in zip(again, branches, strict=True):
            assert request.row.reused == len(branch) - 1
            assert text(request) == text_alone(branch, 2)

    @pytest.mark.parametrize("state_bytes", [0, 16])
    @pytest.mark.parametrize("seed", range(3))
    def test_names_tell_how_much_is_cached(self, seed: int, state_bytes: int) -> None:
        """Within a block; exactly where a conversation goes on, and of rows with states."""
        crowd, dice = Crowd(pool(20, state_bytes=state_bytes)), random.Random(seed)
        for n in range(40):
            before = dice.choice([[], *(request.row.token_ids for request in crowd.requests)])
            end = dice.choice([len(before), dice.randint(0, len(before))])
            asked, salt = before[:end] + prompt(dice.randint(1, 90), n), dice.choice("ab")
            root = root_name("fake", salt)
            least, most = cached_tokens(crowd.pool.prefixes.names(), root, asked)
            request = crowd.ask(asked, most=dice.randint(1, 70), salt=salt)
            crowd.run()
            assert least <= request.row.reused <= most < least + (1 if state_bytes else BLOCK)

    def test_a_running_row_shares_its_whole_blocks(self) -> None:
        crowd = Crowd(pool(64))
        crowd.ask(prompt(3 * BLOCK), most=1000, wants=lambda row: row.generated < 2)
        while not crowd.requests[0].row.is_read:
            crowd.round()
        second = crowd.ask([*prompt(3 * BLOCK), 50], most=2)
        crowd.run()
        assert second.row.reused == 3 * BLOCK

    def test_the_block_used_longest_ago_goes_first(self) -> None:
        crowd = Crowd(pool(6, 5))
        for n in (1, 2, 1, 3):  # two blocks each
            crowd.ask(prompt(70, n), most=1)
            crowd.run()
        crowd.ask(prompt(70, 4), most=1)
        crowd.run()
        recent = crowd.ask(prompt(70, 1), most=1)
        crowd.run()
        assert recent.row.reused > 0
        old = crowd.ask(prompt(70, 2), most=1)
        crowd.run()
        assert old.row.reused == 0


class TestDisk:
    """Prefixes that fall out of memory, and all of them at the end, come back."""

    def test_a_conversation_survives_a_restart(self, tmp_path: Path) -> None:
        first = Crowd(pool(64, store=PrefixStore(tmp_path, 10**6)))
        before = first.ask(prompt(150), most=20, salt="a")
        first.run()
        first.pool.prefixes.save()
        again = Crowd(pool(64, store=PrefixStore(tmp_path, 10**6)))
        asked = before.row.token_ids + prompt(4, 9)
        after = again.ask(asked, most=5, salt="a")
        stranger = again.ask(asked, most=5, salt="b")
        again.run()
        assert after.row.reused == len(before.row.token_ids) - 1
        assert stranger.row.reused == 0
        assert text(after) == text(stranger) == text_alone(asked, 5)

    def test_what_falls_out_of_memory_comes_back(self, tmp_path: Path) -> None:
        store = PrefixStore(tmp_path, 10**6)
        crowd = Crowd(pool(6, 5, store))
        for n in (1, 2, 3, 4):
            crowd.ask(prompt(70, n), most=1)
            crowd.run()
        store.flush()
        back = crowd.ask(prompt(70, 1), most=1)
        crowd.run()
        assert back.row.reused == 69

        store = PrefixStore(tmp_path, 10**6)
        before = Crowd(pool(64, store=store))
        before.ask(prompt(2 * BLOCK + 1), most=1)
        before.run()
        before.pool.prefixes.save()
        after = pool(3, 3, PrefixStore(tmp_path, 10**6))
        while after.memory.limit - after.memory.used > 1:
            after.memory.take()
        path, _, _ = after.prefixes.match("all", prompt(2 * BLOCK + 1))
        assert [node.tokens for node in path] == [tuple(prompt(2 * BLOCK + 1)[:BLOCK])]
        assert after.prefixes.nodes == len(after.prefixes.names()) - 1 == 1

    def test_files_are_private_and_bounded(self, tmp_path: Path) -> None:
        folder = tmp_path / "prefixes"
        crowd = Crowd(pool(200, store=PrefixStore(folder, 3000)))
        for n in range(9):
            crowd.ask(prompt(100, n), most=1)
            crowd.run()
        crowd.pool.prefixes.save()
        files = list(folder.iterdir())
        assert 0 < sum(file.stat().st_size for file in files) <= 3000
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
        assert folder.stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize("damage", [b"", b"no file of ours", None])
    def test_a_damaged_file_is_not_used(self, tmp_path: Path, damage: bytes | None) -> None:
        crowd = Crowd(pool(64, store=PrefixStore(tmp_path, 10**6)))
        crowd.ask(prompt(150), most=3)
        crowd.run()
        crowd.pool.prefixes.save()
        for file in tmp_path.iterdir():
            content = bytearray(file.read_bytes())
            content[-5] ^= 1
            file.write_bytes(content if damage is None else damage)
        again = Crowd(pool(64, store=PrefixStore(tmp_path, 10**6)))
        request = again.ask(prompt(150), most=3)
        again.run()
        assert text(request) == text_alone(prompt(150), 3)
