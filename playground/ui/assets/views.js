// The views of the page: light or dark, as the visitor's system or as chosen here and stored; and the
// presenter view, which is in the address, so that it can be bookmarked.

// A browser may forbid storage, above all in a frame, or it may be full.
function allowed(what, otherwise) {
  try {
    return what();
  } catch {
    return otherwise;
  }
}
{
  const kept = "xla-playground-theme";
  const named = (name) => new URLSearchParams(location.search).get(name);
  const isPresented = () => named("present") === "1";
  const tell = (name, value) => {
    const address = new URL(location.href);
    if (value) address.searchParams.set(name, value);
    else address.searchParams.delete(name);
    history.replaceState(history.state, "", address);
  };
  allowed(() => {
    const theme = localStorage.getItem(kept);
    if (!theme || named("__theme")) return;
    tell("__theme", theme); // Gradio looks at the address, if it has not begun yet.
    document.body?.classList.toggle("dark", theme === "dark");
  });
  const present = () => {
    document.documentElement.classList.toggle("present", isPresented());
    document.getElementById("present_switch")?.setAttribute("aria-pressed", isPresented());
  };
  present();
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("#dark_switch")) {
      const theme = document.body.classList.toggle("dark") ? "dark" : "light";
      tell("__theme", theme);
      allowed(() => localStorage.setItem(kept, theme)); // Else it holds for this visit.
    }
    if (event.target.closest?.("#present_switch")) {
      tell("present", isPresented() ? null : "1");
      present();
    }
  });
}
