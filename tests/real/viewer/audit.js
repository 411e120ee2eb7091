// The defects of accessibility of a page: an expression whose value is a list of texts, empty for a sound page.
(() => {
  const defects = [];
  const all = (selector) => [...document.querySelectorAll(selector)];
  const name = (element) => element.outerHTML.slice(0, 100);
  const isShown = (element) => element.checkVisibility();

  for (const [selector, count] of [["h1", 1], ["main", 1], ["header nav", 1], ["html[lang]", 1]]) {
    if (all(selector).length !== count) defects.push(`${all(selector).length} elements ${selector}, not ${count}`);
  }
  if (!document.title) defects.push("the page has no title");
  const levels = all("main :is(h1, h2, h3, h4)").map((heading) => Number(heading.tagName[1]));
  levels.forEach((level, at) => {
    if (level > (levels[at - 1] ?? 0) + 1) defects.push(`a heading of level ${level} follows one of level ${levels[at - 1]}`);
  });
  for (const input of all("input, select, textarea")) {
    const label = [...(input.labels ?? [])].map((label) => label.textContent).join("") || input.getAttribute("aria-label");
    if (!label?.trim()) defects.push(`no label: ${name(input)}`);
  }
  for (const control of all("a, button, summary")) {
    if (!control.textContent.trim() && !control.getAttribute("aria-label")) defects.push(`no text: ${name(control)}`);
  }
  for (const image of all("img, svg")) {
    const isNamed = image.getAttribute("alt") ?? image.getAttribute("aria-label") ?? image.closest("[role=img][aria-label]");
    if (!isNamed && !image.closest("[aria-hidden=true]")) defects.push(`no alternative: ${name(image)}`);
  }
  for (const fieldset of all("fieldset")) {
    if (!fieldset.querySelector("legend")) defects.push(`no legend: ${name(fieldset)}`);
  }
  for (const table of all("table")) {
    if (!table.querySelector("th[scope]")) defects.push(`no heading of a row or column: ${name(table)}`);
  }
  // A region that scrolls is reached by keys only if it or a part of it takes the focus.
  for (const element of all("main *").filter(isShown)) {
    const style = getComputedStyle(element);
    const scrolls = (style.overflowX === "auto" && element.scrollWidth > element.clientWidth)
      || (style.overflowY === "auto" && element.scrollHeight > element.clientHeight);
    if (scrolls && element.tabIndex < 0 && !element.querySelector("a, button, input")) defects.push(`scrolls, without focus: ${name(element)}`);
  }
  const ids = all("[id]").map((element) => element.id);
  if (new Set(ids).size < ids.length) defects.push(`${ids.length - new Set(ids).size} ids are not unique`);

  // Contrast, by the formula of WCAG 2: text has at least 4.5 to 1 on its background.
  const parts = (colour) => {
    const numbers = colour.match(/[\d.]+/g).map(Number);
    return numbers.length === 3 ? [...numbers, 1] : numbers;
  };
  const over = (top, bottom) => [0, 1, 2].map((at) => top[at] * top[3] + bottom[at] * (1 - top[3]));
  const background = (element) => {
    const own = parts(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own : over(own, element.parentElement ? background(element.parentElement) : [255, 255, 255]);
  };
  const luminance = (colour) => {
    const linear = colour.slice(0, 3).map((part) => part / 255).map((part) => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4);
    return linear[0] * .2126 + linear[1] * .7152 + linear[2] * .0722;
  };
  const opacity = (element) => Number(getComputedStyle(element).opacity) * (element.parentElement ? opacity(element.parentElement) : 1);
  const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  const low = new Set();
  for (const element of all("body *").filter(isShown).filter(hasText).slice(0, 1500)) {
    if (element.closest("svg, option")) continue;
    const behind = background(element);
    const text = parts(getComputedStyle(element).color);
    text[3] *= opacity(element);
    const [light, dark] = [luminance(over(text, behind)), luminance(behind)].sort((one, other) => other - one);
    const contrast = (light + .05) / (dark + .05);
    if (contrast < 4.5) low.add(`contrast ${contrast.toFixed(2)}: ${element.tagName} ${element.className} in ${element.parentElement.className}`);
  }
  return [...defects, ...low];
})()
