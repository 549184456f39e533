"use strict";
// Without this script every link loads a page. With it, a click on a step keeps the place, and lists follow a run.

const load = async (url) => {
  const reply = await fetch(url);
  return new DOMParser().parseFromString(await reply.text(), "text/html");
};

// The parts of a question's page that depend on the open step are taken from the page of another step.
// Only the step that was asked for last is shown: pages may arrive in another order.
let asked = "";
const showStep = async (url, remember) => {
  asked = url;
  const page = await load(url);
  if (asked !== url) return;
  const fresh = page.querySelector(".panels");
  if (!fresh) { location.href = url; return; }
  const held = document.activeElement && document.activeElement.getAttribute("href");
  const drawings = [...document.querySelectorAll(".drawing, .timeline, .all-steps .scroll")].map((each) => [each.scrollLeft, each.scrollTop]);
  const open = [...document.querySelectorAll("details")].map((each) => each.open);
  document.querySelector(".panels").replaceWith(document.adoptNode(fresh));
  document.querySelectorAll("details").forEach((each, at) => { each.open = open[at]; });
  document.querySelectorAll(".drawing, .timeline, .all-steps .scroll").forEach((each, at) => {
    if (drawings[at]) [each.scrollLeft, each.scrollTop] = drawings[at];
  });
  if (remember) history.pushState(null, "", url);
  const links = held ? [...document.querySelectorAll("a[data-swap]")] : [];
  const again = links.find((each) => each.getAttribute("href") === held);
  if (again) again.focus({ preventScroll: true });
};

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-swap]");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  const url = link.getAttribute("href");
  showStep(url, true).then(() => {
    const parameter = new URL(url, location.href).searchParams.has("other_step") ? "other_step" : "step";
    const panel = document.getElementById(parameter) || document.getElementById("step");
    const box = panel && panel.getBoundingClientRect();
    if (box && (box.top > innerHeight * 0.7 || box.bottom < 0)) panel.scrollIntoView({ block: "start" });
  });
});

addEventListener("popstate", () => {
  if (document.querySelector(".panels")) showStep(location.href, false);
});

// The arrow keys go from step to step where a drawing, a time line or a step has the focus.
document.addEventListener("keydown", (event) => {
  if (!["ArrowLeft", "ArrowRight"].includes(event.key) || event.metaKey || event.ctrlKey || event.altKey) return;
  const panel = event.target.closest(".panel");
  if (!panel || !event.target.closest(".tree a, .timeline a, .opened nav")) return;
  const link = panel.querySelector(`.opened nav [rel=${event.key === "ArrowLeft" ? "prev" : "next"}]`);
  if (!link) return;
  event.preventDefault();
  const url = link.getAttribute("href");
  showStep(url, true).then(() => {
    const current = [...document.querySelectorAll(".tree [aria-current], .opened nav a")][0];
    if (current) current.focus({ preventScroll: true });
  });
});

// A list shows new questions of its runs, as long as nothing in it has the focus.
const follow = async () => {
  const list = document.querySelector("[data-live]");
  if (!list) return;
  const reply = await fetch("/state").catch(() => null);
  const state = reply && reply.ok ? await reply.json() : null;
  if (state && state.progress !== document.body.dataset.state && !list.contains(document.activeElement)) {
    const page = await load(location.href);
    for (const id of ["results", "state"]) {
      const [old, fresh] = [document.getElementById(id), page.getElementById(id)];
      if (old && fresh) old.replaceWith(document.adoptNode(fresh));
    }
    document.body.dataset.state = state.progress;
  }
  setTimeout(follow, state && !state.growing ? 15000 : 2000);  // another run may begin in the folder
};
setTimeout(follow, 1000);
