// @ts-check
// The parts of the pages that need a script: keys, token details, further tokens, following a running job. Every page can
// be read without it.

/** @template {Element} E @param {string} selector @param {new () => E} kind @returns {E | null} */
const one = (selector, kind) => {
  const found = document.querySelector(selector);
  return found instanceof kind ? found : null;
};

/**
 * Returns the whole address of a path. `fetch` refuses addresses with a password, which a page has that was opened so.
 * @param {string} path
 */
const addressOf = (path) => {
  const address = new URL(path, location.href);
  address.username = address.password = "";
  return address;
};

/** @param {string} text */
const announce = (text) => {
  const announcement = one("#announcement", HTMLElement);
  if (announcement) announcement.textContent = text;
};

// Rows of lists -------------------------------------------------------------------------------------------------------

/** @returns {HTMLAnchorElement[]} the first link of each row of the lists */
const rowLinks = () =>
  [...document.querySelectorAll("table.list tbody tr")]
    .map((row) => row.querySelector("th a, td a"))
    .filter((link) => link instanceof HTMLAnchorElement);

/** Moves the focus to the next or previous row. @param {number} step */
const moveRow = (step) => {
  const links = rowLinks();
  if (links.length === 0) return;
  const row = document.activeElement?.closest("tr");
  const at = links.findIndex((link) => link.closest("tr") === row);
  const next = at < 0 ? (step > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + step, 0), links.length - 1);
  links[next].focus();
};

// Tokens --------------------------------------------------------------------------------------------------------------

/** @type {HTMLElement | null} */
let current = null;

/** Shows the details of a token. @param {HTMLElement} token */
const show = (token) => {
  const facts = one("#token", HTMLElement);
  const run = token.closest(".run");
  if (!facts || !(run instanceof HTMLElement)) return;
  const parts = [`token ${token.id.slice(1)}`, `id ${token.dataset.i}`, JSON.stringify(token.textContent)];
  if (token.dataset.l !== undefined) parts.push(`logprob ${token.dataset.l}`);
  if (token.dataset.r !== undefined) {
    const difference = Number(token.dataset.r) - Number(token.dataset.l);
    parts.push(`recomputed ${token.dataset.r}, difference ${Number.isNaN(difference) ? "unknown" : difference.toPrecision(3)}`);
  }
  parts.push(run.dataset.kind ?? "");
  if (run.dataset.version && run.dataset.version !== "-1") parts.push(`version ${run.dataset.version}`);
  if (run.dataset.reason) parts.push(run.dataset.reason);
  if (run.dataset.spliced) parts.push(`spliced into the next prompt (rendered by the template: ${run.dataset.spliced})`);
  if (run.dataset.audit) parts.push(`audited: the server renders ${run.dataset.audit === "equal" ? "the same" : "other"} ids`);
  if (run.dataset.callId) parts.push(`call ${run.dataset.call}, ${run.dataset.role} (${run.dataset.callId})`);
  if (run.dataset.upstream) parts.push(run.dataset.upstream);
  facts.textContent = parts.join("  ·  ");
};

/** Marks a token as the current one. @param {HTMLElement} token */
const select = (token) => {
  current?.classList.remove("at");
  current = token;
  token.classList.add("at");
  show(token);
  token.scrollIntoView({ block: "nearest" });
};

/** @returns {HTMLElement[]} */
const allTokens = () => [...document.querySelectorAll("#tokens i")].filter((token) => token instanceof HTMLElement);

/** Moves to the token at a distance. @param {number} step */
const moveToken = async (step) => {
  const start = current ? Number(current.id.slice(1)) + step : 0;
  let token = document.getElementById(`t${start}`);
  if (!token && step > 0 && (await loadMore())) token = document.getElementById(`t${start}`);
  if (token ?? !current) select(token ?? allTokens()[0]);
};

/** Moves to the first token of the next or previous answer. @param {number} step */
const moveAnswer = async (step) => {
  const at = current ? Number(current.id.slice(1)) : -1;
  /** @returns {HTMLElement[]} */
  const starts = () => {
    const runs = [...document.querySelectorAll("#tokens .run:not(.prompt)")];
    const firsts = runs.filter((run, index) => index === 0 || run.getAttribute("data-call") !== runs[index - 1].getAttribute("data-call"));
    return firsts.map((run) => run.querySelector("i")).filter((token) => token instanceof HTMLElement);
  };
  const index = (/** @type {HTMLElement} */ token) => Number(token.id.slice(1));
  for (;;) {
    const found = step > 0 ? starts().find((token) => index(token) > at) : starts().findLast((token) => index(token) < at);
    if (found) return select(found);
    if (step < 0 || !(await loadMore())) return announce("no further answer");
  }
};

/**
 * Loads the elements of a window. Resolves to null, and announces it, if that fails.
 * @param {string} address @param {string} what
 */
const fetchWindow = async (address, what) => {
  const answer = await fetch(addressOf(address)).catch(() => null);
  if (answer?.ok) return new DOMParser().parseFromString(await answer.text(), "text/html").body;
  announce(`the next ${what} cannot be loaded${answer ? `: ${answer.status}` : ""}`);
  return null;
};

/** Loads the next window of tokens. Resolves to whether there was one. */
const loadMore = async () => {
  const more = one("#tokens .more", HTMLAnchorElement);
  if (!more?.dataset.next || more.dataset.loading) return false;
  more.dataset.loading = "yes";
  const window = await fetchWindow(more.dataset.next, "tokens");
  if (!window) {
    delete more.dataset.loading;
    return false;
  }
  more.replaceWith(...window.childNodes);
  watchEnd();
  return true;
};

const end = new IntersectionObserver((entries) => {
  if (entries.some((entry) => entry.isIntersecting)) void loadMore();
}, { rootMargin: "600px" });

const watchEnd = () => {
  end.disconnect();
  const more = one("#tokens .more", HTMLElement);
  if (more) end.observe(more);
};

const tokens = one("#tokens", HTMLElement);
tokens?.addEventListener("mouseover", (event) => {
  if (event.target instanceof HTMLElement && event.target.matches("i")) show(event.target);
});
tokens?.addEventListener("click", (event) => {
  if (event.target instanceof HTMLElement && event.target.matches("i")) select(event.target);
});

/** @param {string} colour */
const colourBy = (colour) => {
  if (!tokens) return;
  tokens.dataset.colour = colour;
  announce(`coloured by ${colour}`);
};
for (const choice of document.querySelectorAll("input[name=colour]")) {
  choice.addEventListener("change", () => choice instanceof HTMLInputElement && colourBy(choice.value));
}

/** Chooses the next colouring. */
const nextColour = () => {
  const choices = [...document.querySelectorAll("input[name=colour]")].filter((choice) => choice instanceof HTMLInputElement);
  const at = choices.findIndex((choice) => choice.checked);
  const next = choices[(at + 1) % choices.length];
  if (!next) return;
  next.checked = true;
  colourBy(next.value);
};

/** Shows or hides the ids beside the texts of tokens. */
const showIds = () => tokens?.classList.toggle("with-ids", ids?.checked);
const ids = one("#ids", HTMLInputElement);
ids?.addEventListener("change", showIds);

// Keys ----------------------------------------------------------------------------------------------------------------

const help = one("#help", HTMLDialogElement);
one("#help-button", HTMLButtonElement)?.addEventListener("click", () => help?.showModal());

const up = () => {
  const steps = [...document.querySelectorAll("header nav a")];
  const last = steps.at(-1);
  if (last instanceof HTMLAnchorElement) last.click();
};

/** Moves to the next place at which a sample parts from the first. */
const nextParting = () => {
  const links = [...document.querySelectorAll("a.parting")].filter((link) => link instanceof HTMLAnchorElement);
  const at = links.findIndex((link) => link === document.activeElement);
  links[(at + 1) % links.length]?.focus();
};

/** @type {Record<string, () => void>} */
const keys = {
  j: () => moveRow(1),
  k: () => moveRow(-1),
  u: up,
  n: () => void moveAnswer(1),
  p: () => void moveAnswer(-1),
  d: nextParting,
  c: nextColour,
  i: () => ids?.click(),
  ArrowRight: () => void moveToken(1),
  ArrowLeft: () => void moveToken(-1),
  "/": () => one("#filter", HTMLInputElement)?.focus(),
  "?": () => help?.showModal(),
};

document.addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof HTMLElement && event.target.matches("input, select, textarea, [contenteditable]");
  if (event.ctrlKey || event.metaKey || event.altKey || help?.open) return;
  if (isTyping) {
    if (event.key === "Escape" && event.target instanceof HTMLElement) event.target.blur();
    return;
  }
  const action = keys[event.key];
  if (!action || (event.key.startsWith("Arrow") && !tokens)) return;
  event.preventDefault();
  action();
});

// Following a running job ---------------------------------------------------------------------------------------------

/** Replaces the page by its present state. */
const refresh = async () => {
  const answer = await fetch(addressOf(location.pathname + location.search));
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const main = one("#main", HTMLElement);
  const next = page.querySelector("#main");
  if (!main || !next || main.innerHTML === next.innerHTML) return;
  // A reader who types or walks through rows keeps the place: the page is replaced only while nothing in it has focus.
  if (main.contains(document.activeElement)) return announce("the job has changed: reload to see it");
  main.replaceChildren(...next.childNodes);
};

/** @type {EventSource | null} */
let changes = null;

/** Follows the job while the page is visible: a browser opens six connections to a host, and hidden tabs would hold them. */
const follow = () => {
  const address = document.body.dataset.follows;
  if (!address || document.hidden) {
    changes?.close();
    changes = null;
  } else if (!changes) {
    changes = new EventSource(addressOf(address));
    changes.addEventListener("change", () => void refresh());
  }
};
document.addEventListener("visibilitychange", () => {
  follow();
  if (changes) void refresh();
});
follow();

watchEnd();

/** Selects the token of the address. A static page begins with the first tokens, so windows are loaded up to it. */
const selectStart = async () => {
  const id = location.hash.slice(1);
  if (!/^t\d+$/.test(id)) return;
  let token = document.getElementById(id);
  while (!token && (await loadMore())) token = document.getElementById(id);
  if (token) select(token);
};
void selectStart();
