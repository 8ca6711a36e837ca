"""The table of compiled functions."""

from playground.ui.tables import functions_table
from tests.playground.reader import words
from tests.playground.samples import entry
from xla_backend import CacheKey, CacheOutcome, FirstCall
from xla_backend.interface.results import KeyHistory


def test_a_row_says_what_the_first_call_cost_and_what_it_gained() -> None:
    text = words(functions_table([entry()], {}))
    assert text.endswith(
        "gpt2-stories 16 1 32 3.20 s trace 1.00 s · compile 2.00 s · run 200 ms "
        "100 ms median of 3 31× 3"
    )

    assert words(functions_table([entry(cached=None, hits=0)], {})).endswith("– – 0")
    restored = FirstCall(CacheOutcome.DISK, trace_s=0.02, compile_s=0.3, run_s=0.1)
    text = words(functions_table([entry(first_call=restored)], {}))
    assert text.endswith(
        "420 ms restored: graph 20 ms · code 300 ms · run 100 ms 100 ms median of 3 – 3"
    )
    assert "those saved on disk are restored" in functions_table([], {})


def test_functions_of_several_rows_or_all_lengths_are_told_apart() -> None:
    assert "in 4 rows" in words(functions_table([entry(batch_size=4)], {}))
    assert "rows" not in words(functions_table([entry()], {}))

    key = CacheKey(256, 1, 256, is_pooled=True)
    assert "all to 256 1 –" in words(functions_table([entry(key=key)], {}))
    key = CacheKey(256, 1, 256, is_pooled=True, prompt_lookup_num_tokens=3)
    assert "all to 256 lookup 3 1 –" in words(functions_table([entry(key=key)], {}))

    assert "<i>" not in functions_table([entry(model="<i>x</i>")], {})


def test_functions_of_earlier_requests_follow_those_in_memory() -> None:
    was = KeyHistory(times=9, miss_s=6.4, disk_s=0.64, run_s=0.2)
    text = words(functions_table([entry()], {"gpt2-stories": {CacheKey(64, 1, 32): was}}))
    assert text.endswith(
        "gpt2-stories not in memory 64 1 32 6.40 s compiled 200 ms last run – – requested 9 times"
    )
    past = {"m": {CacheKey(16, 1, new): KeyHistory(times=new, miss_s=1.0) for new in range(1, 16)}}
    markup = functions_table([], past)
    assert markup.count("<tr>") == 1 + 12
    assert "And 3 shapes less used." in markup
    assert "requested 15 times" in words(markup).partition("requested 14 times")[0]


def test_what_is_being_compiled_comes_first_and_functions_can_be_removed() -> None:
    making = [("m", CacheKey(16, 1, new)) for new in (16, 32)]
    past = {"m": {CacheKey(16, 1, 64): KeyHistory(times=1, miss_s=1.0)}}
    text = words(functions_table([entry(), entry(batch_size=4)], past, making, removable=True))
    assert "m 16 1 16 compiling – – – m 16 1 32 queued – – – gpt2-stories 16" in text
    assert text.count("Remove…") == 2, "the function alone, and that of an earlier request"
    assert "Remove" not in functions_table([entry()], past, making)
