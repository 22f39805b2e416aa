// Keeps the page as new as its server's view: sections that differ are exchanged, the reader's place in them is kept.
"use strict";

const span = (seconds) => {
  const whole = Math.max(0, Math.floor(seconds)), two = (n) => String(n).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${two(Math.floor(whole % 3600 / 60))}m`;
  return `${Math.floor(whole / 86400)}d${two(Math.floor(whole % 86400 / 3600))}h`;
};

const tick = () => {
  for (const each of document.querySelectorAll("time[data-since], time[data-due]")) {
    const left = (Date.parse(each.dateTime) - Date.now()) / 1000;
    const text = "since" in each.dataset ? span(-left) : left > 0 ? span(Math.ceil(left)) : "now";
    if (each.textContent !== text) each.textContent = text;
  }
};
setInterval(tick, 1000);

// What somebody writes is not taken out of his hands.
const written = (section) => [...section.querySelectorAll("input, textarea, select")].some((each) =>
  each === document.activeElement || ("defaultValue" in each && each.value !== each.defaultValue));

const exchange = (old, made) => {
  const as = made.innerHTML;
  if (as === old.dataset.as || written(old)) return;
  const open = [...old.querySelectorAll("details[open][id]")].map((each) => each.id);
  const at = old.contains(document.activeElement) ? document.activeElement.outerHTML : "";
  old.replaceChildren(...made.childNodes);
  old.dataset.as = as;
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (at) [...old.querySelectorAll("a, button, summary")].find((each) => each.outerHTML === at)?.focus({ preventScroll: true });
};

let fetching = false, again = false;
const renew = async () => {
  if (fetching) { again = true; return; }
  fetching = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const old of document.querySelectorAll("main section[id]")) {
      const made = fresh.getElementById(old.id);
      if (made) exchange(old, made);
    }
    tick();
  } catch { /* the stream says that the server is away */ } finally {
    fetching = false;
    if (again) { again = false; renew(); }
  }
};

const cluster = document.body.dataset.cluster;
if (cluster) {
  const link = document.getElementById("link");
  const stream = new EventSource(`/api/v1/clusters/${encodeURIComponent(cluster)}/events`);
  stream.addEventListener("changed", () => { link.hidden = true; renew(); });
  stream.addEventListener("error", () => { link.hidden = false; });
  stream.addEventListener("open", () => { link.hidden = true; });
  // What no event tells of is asked for, while somebody looks.
  const every = Number(document.body.dataset.every);
  if (every) setInterval(() => { if (document.visibilityState === "visible") renew(); }, every * 1000);
}
