// Keeps the page current: asks for it again, and changes in <main> only what differs, so that
// focus, selection, scrolling and what is unfolded stay. Without this script the page is
// complete, as of when it was made.
"use strict";

(() => {
  const every = 2000; // milliseconds between an answer and the next question
  const patience = 8000; // until an answer that hasn't come counts as none

  const main = document.getElementById("main");
  const mark = document.getElementById("mark");
  const text = document.getElementById("mark-text");
  const button = document.getElementById("mark-button");
  let timer = 0;
  let asking = null; // the question that is under way
  let paused = false;
  let seen = Number(main.dataset.now); // the service's clock when it last answered
  let skew = seen - Date.now(); // of the service's clock against ours

  const clock = (at) => new Date(at).toISOString().slice(11, 19);

  function show(state, words) {
    mark.dataset.state = state;
    if (text.textContent !== words) text.textContent = words;
  }

  function plan(wait) {
    clearTimeout(timer);
    if (!paused && !document.hidden) timer = setTimeout(ask, wait);
  }

  async function ask() {
    if (asking) return;
    asking = new AbortController();
    const late = setTimeout(() => asking.abort(), patience);
    try {
      const answer = await fetch(location.href, { signal: asking.signal, cache: "no-store", headers: { Accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("main");
      if (!fresh || answer.status >= 500) throw new Error("no page");
      if (!paused) {
        seen = Number(fresh.dataset.now);
        skew = seen - Date.now();
        if (!busy()) {
          alike(main, fresh);
          document.title = page.title;
        }
        show("live", "Live");
      }
    } catch {
      if (!paused && !document.hidden) show("lost", "Not reachable, last seen at " + clock(seen));
    } finally {
      clearTimeout(late);
      asking = null;
      plan(every);
    }
  }

  // Nothing is changed under somebody who fills in a form or is about to copy something.
  function busy() {
    const at = document.activeElement;
    if (at && main.contains(at) && at.matches("input, select, textarea")) return true;
    const chosen = getSelection();
    return chosen && !chosen.isCollapsed && main.contains(chosen.anchorNode);
  }

  // alike makes old what fresh is, and keeps every node that can stay. Nodes with an id are told by it,
  // others by their place.
  function alike(old, fresh) {
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && !(name === "open" && old.localName === "details")) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    const coming = new Set([...fresh.children].map((child) => child.id).filter(Boolean));
    const known = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
    let at = old.firstChild;
    for (const child of [...fresh.childNodes]) {
      while (at && at.id && !coming.has(at.id)) at = discard(at);
      const same = child.id ? known.get(child.id) : at && !at.id && at.nodeName === child.nodeName ? at : null;
      if (!same || same.nodeName !== child.nodeName) {
        old.insertBefore(document.adoptNode(child), at);
        continue;
      }
      if (same === at) at = at.nextSibling;
      else old.insertBefore(same, at);
      if (same.nodeType === Node.ELEMENT_NODE) alike(same, child);
      else if (same.nodeValue !== child.nodeValue) same.nodeValue = child.nodeValue;
    }
    while (at) at = discard(at);
  }

  function discard(node) {
    const next = node.nextSibling;
    node.remove();
    return next;
  }

  // spell is the server's: two units at most.
  function spell(seconds) {
    for (const [size, part, name, minor] of [[86400, 3600, "d", "h"], [3600, 60, "h", "m"], [60, 1, "m", "s"]]) {
      if (seconds < size) continue;
      const rest = Math.floor((seconds % size) / part);
      return Math.floor(seconds / size) + name + (rest ? " " + rest + minor : "");
    }
    return seconds + "s";
  }

  // Between two answers, times go on by themselves.
  function tick() {
    if (paused || document.hidden || mark.dataset.state === "lost" || busy()) return;
    const now = Date.now() + skew;
    for (const time of main.querySelectorAll("time[data-relative]")) {
      const off = (Date.parse(time.dateTime) - now) / 1000;
      const words = off >= 1 ? "in " + spell(Math.floor(off)) : off > -1 ? "now" : spell(Math.floor(-off)) + " ago";
      if (time.textContent !== words) time.textContent = words;
    }
  }

  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Resume" : "Pause";
    if (paused) {
      clearTimeout(timer);
      show("paused", "Paused at " + clock(seen));
    } else {
      ask();
    }
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : plan(0)));
  if (!main.querySelector(".failure")) show("live", "Live");
  setInterval(tick, 1000);
  plan(every);
})();
