// Keeps the page as new as its server's view: what differs is exchanged, the reader's place in it is kept.
"use strict";

const cluster = document.body.dataset.cluster;

const span = (seconds) => {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${two(Math.floor(whole % 3600 / 60))}m`;
  return `${Math.floor(whole / 86400)}d${two(Math.floor(whole % 86400 / 3600))}h`;
};

// Every moment is shown in the zone of its reader, which the head names, with its offset; without this script in UTC. Commands
// and ids stay as they are.
const two = (n) => String(n).padStart(2, "0");
const offsetOf = (moment) => {
  const west = moment.getTimezoneOffset(), far = Math.abs(west);
  return `${west > 0 ? "-" : "+"}${two(Math.floor(far / 60))}:${two(far % 60)}`;
};
const localOf = (moment) => new Date(moment - moment.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
const inMyZone = (text) => text.replace(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g, (utc) => {
  const moment = new Date(utc);
  return isNaN(moment) || !moment.getTimezoneOffset() ? utc : `${localOf(moment).replace("T", " ")}${offsetOf(moment)}`;
});
const zoned = (root) => {
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let each = texts.nextNode(); each; each = texts.nextNode()) {
    const shown = inMyZone(each.data);
    if (shown !== each.data && !each.parentElement.closest("code")) each.data = shown;
  }
  for (const each of root.querySelectorAll("time[title]")) each.title = inMyZone(each.title);
};

// What was due a moment ago is another thing by now: the server says which, a second later, as moments here are whole seconds.
let ticked = Date.now();
const tick = () => {
  const before = ticked;
  ticked = Date.now();
  for (const each of document.querySelectorAll("time[data-since], time[data-due]")) {
    const due = Date.parse(each.dateTime), left = (due - ticked) / 1000;
    if ("due" in each.dataset && before < due + 1000 && due + 1000 <= ticked && cluster) renew();
    const text = "since" in each.dataset ? span(-left) : span(Math.ceil(left));
    if (each.textContent !== text) each.textContent = text;
  }
};
// What a reader writes is not taken out of their hands.
const written = (section) => [...section.querySelectorAll("input, textarea, select")].some((each) =>
  each === document.activeElement || ("defaultValue" in each && each.value !== each.defaultValue));

// Only what differs is touched, so that readers keep their place: rows are told apart by their data-key, and a link never
// becomes another one under a reader's finger. What this script has written itself stays.
const keyOf = (each) => each?.dataset?.key || each?.id;
const morph = (old, made, later) => {
  if (old.isEqualNode(made) || old.matches?.("#link, #logged-out, form[data-zoned]")) return;
  if (old.matches?.("section, form") && written(old)) return;
  if (old.nodeType !== made.nodeType || old.nodeName !== made.nodeName || old.nodeName === "A" && old.href !== made.href) {
    old.replaceWith(made);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) { old.data = made.data; return; }
  for (const { name } of [...old.attributes]) if (!made.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const keyed = new Map([...old.children].filter(keyOf).map((each) => [keyOf(each), each]));
  let at = old.firstChild;
  for (const fresh of [...made.childNodes]) {
    const key = keyOf(fresh), mine = key ? keyed.get(key) : keyOf(at) ? null : at;
    keyed.delete(key);
    if (!mine) { old.insertBefore(fresh, at); continue; }
    if (mine === at) at = at.nextSibling; else old.insertBefore(mine, at);
    if (key) later.push([mine, fresh]); else morph(mine, fresh, later);
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
};

// In portions that leave room for a frame, however many rows there are.
const PORTION = 15;
const frame = () => new Promise((go) => { setTimeout(go); });
const exchange = async (old, made) => {
  const focused = document.activeElement, later = [];
  morph(old, made, later);
  let began = performance.now();
  for (let next = later.shift(); next; next = later.shift()) {
    morph(...next, later);
    if (performance.now() - began > PORTION) { await frame(); began = performance.now(); }
  }
  if (document.activeElement === document.body && focused.isConnected) focused.focus({ preventScroll: true });
};

// At most once a second, whatever happens.
const LEAST = 1000, LATER = 5000;
let fetching = false, again = false, last = -LEAST;
const renew = async () => {
  if (fetching) { again = true; return; }
  fetching = true;
  try {
    await new Promise((go) => { setTimeout(go, last + LEAST - performance.now()); });
    last = performance.now();
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok || answer.redirected) return;
    const text = await answer.text();
    await frame();
    const fresh = new DOMParser().parseFromString(text, "text/html");
    await frame();
    zoned(fresh.getElementById("main"));
    await frame();
    await exchange(document.getElementById("main"), document.adoptNode(fresh.getElementById("main")));
    tick();
  } catch { /* the stream says that the server is away */ } finally {
    fetching = false;
    if (again) { again = false; renew(); }
  }
};

// A moment is asked for in the zone of its reader; without this script, in UTC.
const form = document.querySelector("form[data-zoned]");
if (form) {
  const { at, offset } = form.elements;
  const asked = new Date(at.value + offset.value);
  if (at.value && !isNaN(asked)) at.value = localOf(asked);
  form.addEventListener("submit", () => { offset.value = offsetOf(new Date(at.value)); });
}
for (const each of document.querySelectorAll("[data-zone]")) {
  each.textContent = `${each.dataset.zone}${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
}
zoned(document.getElementById("main"));

setInterval(tick, 1000);
if (cluster) {
  const link = document.getElementById("link"), ended = document.getElementById("logged-out");
  let stream = null, waiting = 0;
  // A stream that is refused is not tried again by the browser: a proxy may stand before a server that is away for a moment, and
  // a token may have ended, which shows once a person logs in again.
  const whyNot = async () => {
    waiting = waiting || setTimeout(() => { waiting = 0; listen(); }, LATER);
    let refused = false;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "manual" });
      refused = answer.type === "opaqueredirect" || answer.status === 401 || answer.status === 403;
    } catch { /* there is no answer */ }
    ended.hidden = !refused;
    link.hidden = refused;
  };
  const listen = () => {
    if (stream || document.visibilityState !== "visible") return;
    const mine = stream = new EventSource(`/api/v1/clusters/${encodeURIComponent(cluster)}/events`);
    mine.addEventListener("changed", renew);
    mine.addEventListener("open", () => { link.hidden = ended.hidden = true; });
    mine.addEventListener("error", () => {
      if (mine !== stream) return;
      link.hidden = !ended.hidden;
      if (mine.readyState === EventSource.CLOSED) { stream = null; whyNot(); }
    });
  };
  // A browser has six connections to a server, for all its tabs: those that are not looked at leave theirs to the others.
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") { listen(); return; }
    stream?.close();
    stream = null;
  });
  listen();
  // What no event tells of is asked for, while the page is looked at.
  const every = Number(document.body.dataset.every);
  if (every) setInterval(() => { if (document.visibilityState === "visible") renew(); }, every * 1000);
}
