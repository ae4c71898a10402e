// Arrow keys, Page Up and Down, space, Home and End move; so do the two buttons and a finger. The address names the slide.
(() => {
  const slides = [...document.querySelectorAll("section")];
  const place = document.getElementById("place");
  let now = 0;
  const show = (number) => {
    now = Math.max(0, Math.min(slides.length - 1, number));
    slides.forEach((slide, other) => slide.classList.toggle("now", other === now));
    slides[now].scrollTop = 0;
    place.textContent = `${now + 1} / ${slides.length}`;
    history.replaceState(null, "", `#${slides[now].id}`);
  };
  const named = () => show(slides.findIndex((slide) => `#${slide.id}` === location.hash));
  const on = ["ArrowRight", "ArrowDown", "PageDown", " ", "n"], back = ["ArrowLeft", "ArrowUp", "PageUp", "p"];
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, button")) return;
    if (on.includes(event.key)) show(now + 1);
    else if (back.includes(event.key)) show(now - 1);
    else if (event.key === "Home") show(0);
    else if (event.key === "End") show(slides.length - 1);
    else return;
    event.preventDefault();
  });
  let start = null;
  addEventListener("touchstart", (event) => { start = event.target.matches("input") ? null : event.touches[0]; });
  addEventListener("touchend", (event) => {
    const end = event.changedTouches[0];
    if (!start || Math.abs(end.clientX - start.clientX) < 60 || Math.abs(end.clientY - start.clientY) > 40) return;
    const box = slides[now].firstElementChild.nextElementSibling;
    if (box && box.scrollWidth > box.clientWidth) return; // the finger moves a wide figure
    show(now + (end.clientX < start.clientX ? 1 : -1));
  });
  document.getElementById("back").addEventListener("click", () => show(now - 1));
  document.getElementById("on").addEventListener("click", () => show(now + 1));
  addEventListener("hashchange", named);
  document.body.classList.add("moving");
  named();
})();
