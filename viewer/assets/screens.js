// @ts-check
// The player of the page of screens, which runs behind script.js and uses its functions. The page can be read without it.

{
  const list = one("#screens", HTMLElement);
  const player = one("#player", HTMLElement);
  const slider = one("#screen-slider", HTMLInputElement);
  const speed = one("#speed", HTMLSelectElement);
  const button = one("#play", HTMLButtonElement);
  const total = Number(list?.dataset.total);
  /** The index of the shown screen. */
  let at = 0;
  let isPlaying = false;
  /** @type {number | undefined} */
  let timer;
  /** @type {Promise<boolean> | null} */
  let loading = null;

  /** @returns {HTMLElement[]} the loaded screens */
  const screens = () => [...document.querySelectorAll("#screens .screen")].filter((screen) => screen instanceof HTMLElement);

  /** Loads the next window. Resolves to whether there was one. */
  const fetchNext = async () => {
    const more = one("#screens .more", HTMLAnchorElement);
    if (!more?.dataset.next) return false;
    const window = await fetchWindow(more.dataset.next, "screens");
    if (!window) return false;
    for (const screen of window.querySelectorAll(".screen")) screen.setAttribute("hidden", "");
    more.replaceWith(...window.childNodes);
    one("#screens .more", HTMLElement)?.setAttribute("hidden", "");
    return true;
  };
  const load = () => (loading ??= fetchNext().finally(() => (loading = null)));

  /** Shows one screen, and loads the windows up to it. @param {number} index */
  const show = async (index) => {
    at = Math.min(Math.max(index, 0), total - 1);
    const wanted = at;
    while (screens().length <= wanted && (await load()));
    // The reader may have gone to another screen meanwhile.
    if (at !== wanted) return;
    const loaded = screens();
    at = Math.min(at, loaded.length - 1);
    loaded.forEach((screen, place) => (screen.hidden = place !== at));
    const title = loaded[at]?.querySelector("h2")?.textContent ?? "";
    if (slider) {
      slider.value = String(at);
      slider.setAttribute("aria-valuetext", title);
    }
    if (!isPlaying) announce(title);
  };

  /** Waits for the recorded time up to the next screen, and shows it, until the last one. */
  const playOn = async () => {
    clearTimeout(timer);
    if (at + 1 < total && screens().length <= at + 1) await load();
    // The reader may have paused, or chosen another speed, while the window was loaded.
    if (!isPlaying) return;
    clearTimeout(timer);
    const [now, next] = screens().slice(at, at + 2);
    if (!next) return setPlaying(false);
    const seconds = Number(next.dataset.at) - Number(now.dataset.at);
    const delay = Math.max(seconds, 0) * 1000 / Number(speed?.value ?? 1);
    // Tests read the delay.
    if (player) player.dataset.delay = String(delay);
    timer = setTimeout(async () => {
      await show(at + 1);
      if (isPlaying) void playOn();
    }, delay);
  };

  /** @param {boolean} value */
  const setPlaying = (value) => {
    isPlaying = value;
    clearTimeout(timer);
    if (player) delete player.dataset.delay;
    if (button) button.textContent = value ? "Pause (space)" : "Play (space)";
  };

  const toggle = async () => {
    const starts = !isPlaying;
    // At the end, the player begins again.
    if (starts && at === total - 1) await show(0);
    setPlaying(starts);
    if (starts) void playOn();
  };

  /** Shows a screen, and continues from there if the player runs. @param {number} index */
  const moveTo = async (index) => {
    clearTimeout(timer);
    await show(index);
    if (isPlaying) void playOn();
  };

  /** @type {Record<string, () => void>} */
  const screenKeys = {
    n: () => void moveTo(at + 1),
    p: () => void moveTo(at - 1),
    ArrowRight: () => void moveTo(at + 1),
    ArrowLeft: () => void moveTo(at - 1),
    " ": () => void toggle(),
  };

  // Before the keys of all pages, which have another meaning for some of these.
  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || help?.open || !Object.hasOwn(screenKeys, key)) return;
    if (target instanceof HTMLElement) {
      if (target.matches("select")) return;
      if (key === " " && target.matches("a, button, summary")) return;
      // The slider moves by arrows, and a wide screen scrolls by them.
      if (key.startsWith("Arrow") && target.matches("input, pre")) return;
    }
    event.preventDefault();
    event.stopImmediatePropagation();
    screenKeys[key]();
  }, { capture: true });

  one("#previous-screen", HTMLButtonElement)?.addEventListener("click", () => void moveTo(at - 1));
  one("#next-screen", HTMLButtonElement)?.addEventListener("click", () => void moveTo(at + 1));
  button?.addEventListener("click", () => void toggle());
  slider?.addEventListener("input", () => void moveTo(Number(slider.value)));
  speed?.addEventListener("change", () => void (isPlaying && playOn()));

  if (player && total > 0) {
    player.hidden = false;
    one("#screens .more", HTMLElement)?.setAttribute("hidden", "");
    void show(0);
  }
}
