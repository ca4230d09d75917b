// Replaces the content of an open page when the server reports a change. The page is complete without this script.
"use strict";

const POLL = 30000; // milliseconds between two readings of the page where no stream of changes is to be had
const live = document.getElementById("live");
let shownAt = live.dataset.at;
let events = null, loading = false, again = false;

function show(state, text) {
  live.className = state;
  live.textContent = text;
}

function lost() {
  show("lost", `CONNECTION LOST - this page shows ${shownAt}`);
}

function isSelecting() {
  const selection = document.getSelection();
  return selection && !selection.isCollapsed && document.getElementById("main").contains(selection.anchorNode);
}

// Focus stays on the same link, although the content is new.
function replaceContent(next) {
  const main = document.getElementById("main"), focused = document.activeElement;
  // Lists that a reader opened stay open.
  for (const details of main.querySelectorAll("details[id]")) {
    const after = [...next.querySelectorAll("details")].find(item => item.id === details.id);
    if (after) after.open = details.open;
  }
  const href = focused && focused !== main && main.contains(focused) ? focused.getAttribute("href") : null;
  main.replaceChildren(...next.childNodes);
  const link = href ? main.querySelector(`a[href="${CSS.escape(href)}"]`) : null;
  if (link) link.focus({ preventScroll: true });
}

async function load() {
  if (loading) { again = true; return; }
  // Nobody looks, or somebody copies a command: a later change loads the page.
  if (document.hidden || isSelecting()) return;
  loading = true;
  try {
    const response = await fetch(location.href, { cache: "no-store" });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const next = page.getElementById("main");
    if (!next) throw new Error(`HTTP ${response.status}`);
    document.title = page.title;
    shownAt = page.getElementById("live").dataset.at;
    replaceContent(next);
    show("", `live, as of ${shownAt}`);
  } catch {
    lost();
  }
  loading = false;
  if (again) { again = false; load(); }
}

// A hidden page has no stream: a browser opens six connections to a server at most.
function connect() {
  if (document.hidden) {
    if (events) events.close();
    events = null;
  } else if (!events) {
    events = new EventSource("/events");
    events.addEventListener("open", load);
    events.addEventListener("change", load);
    // A stream that was refused, as one of too many, is not a lost connection.
    events.addEventListener("error", () => (events && events.readyState === EventSource.CLOSED ? load() : lost()));
  }
}

// The browser does not open a refused stream again.
setInterval(() => {
  if (events && events.readyState === EventSource.CLOSED) { events = null; load(); connect(); }
}, POLL);
document.addEventListener("visibilitychange", connect);
connect();
