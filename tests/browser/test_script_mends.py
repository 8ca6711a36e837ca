"""The mends of Gradio's scripts: each finds its place, and does what was done before."""

from __future__ import annotations

from collections.abc import Callable

from playground.script_mends import MENDS, mended_scripts
from tests.browser.visit import Visit

Open = Callable[..., Visit]

# Both ways of finding a component in trees that grow, shrink and are put in order anew.
_COMPARE = """([before, mended]) => {
  const find = (code) => new Function(code + "; return _")();
  const [was, is] = [find(before), find(mended)];
  let seed = 1, number = 0;
  const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
  const grow = (depth) => ({id: number++,
    children: depth ? Array.from({length: 3}, () => grow(depth - 1)) : undefined});
  const root = grow(5);
  let found = 0;
  for (let round = 0; round < 20000; round++) {
    const wanted = Math.floor(random() * (number + 5));
    const component = was(root, wanted);
    if (is(root, wanted) !== component) return -1;
    found += component !== null;
    const parent = was(root, Math.floor(random() * number));
    if (round % 50 || !parent?.children) continue;
    if (round % 3 === 0) parent.children.reverse();
    else if (round % 3 === 1) parent.children = parent.children.map((child) => ({...child}));
    else if (random() < 0.2) parent.children.pop();
    else parent.children.unshift(grow(1));
  }
  return found;
}"""


def test_every_place_is_found_once() -> None:
    """Another Gradio may have moved one: then the page works without, but not as well."""
    assert len(mended_scripts()) == len(MENDS)


def test_the_page_loads_what_was_mended(visit: Open) -> None:
    window = visit()
    for route in mended_scripts():
        loaded = window.page.evaluate("path => fetch(path).then(a => a.text())", f".{route.path}")
        assert any(mend.mended in loaded for mend in MENDS), route.path


def test_the_kept_way_leads_where_the_search_led(visit: Open) -> None:
    [mend] = [mend for mend in MENDS if "function _" in mend.place]
    found = visit().page.evaluate(_COMPARE, [mend.place, mend.mended])
    assert found > 10_000
