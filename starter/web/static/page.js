// Keeps the page as new as its server's view: sections that differ are exchanged, the one that has the focus is left alone.
"use strict";

const dark = matchMedia("(prefers-color-scheme: dark)");
const wear = () => document.documentElement.setAttribute("data-bs-theme", dark.matches ? "dark" : "light");
dark.addEventListener("change", wear);
wear();

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
      if (made && !old.contains(document.activeElement) && made.innerHTML !== old.dataset.as) {
        const as = made.innerHTML;
        old.replaceChildren(...made.childNodes);
        old.dataset.as = as;
      }
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
}
