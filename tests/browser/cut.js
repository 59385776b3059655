() => {
    const found = [], range = document.createRange();
    const text = (node) => node.textContent.trim().slice(0, 60);
    for (const place of document.querySelectorAll("main .table")) {
        if (place.scrollWidth <= place.clientWidth + 1) continue;
        const reached = getComputedStyle(place).overflowX === "auto" && place.tabIndex === 0;
        if (innerWidth > 1000 || !reached) found.push(["table", text(place)]);
    }
    const boxes = "main :is(td, th, p, li, dd, dt, h1, h2, h3, button, summary)";
    for (const node of document.querySelectorAll(boxes)) {
        if (node.clientWidth && node.scrollWidth > node.clientWidth + 1) found.push(["cut", text(node)]);
    }
    const words = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    while (words.nextNode()) {
        const node = words.currentNode;
        if (!node.parentElement.checkVisibility() || node.parentElement.closest("script, svg")) continue;
        for (const word of node.data.matchAll(/[A-Za-z0-9]+/g)) {
            range.setStart(node, word.index);
            range.setEnd(node, word.index + word[0].length);
            const lines = [...range.getClientRects()].filter((box) => box.width > 0.5);
            const heights = new Set(lines.map((box) => Math.round(box.top)));
            if (heights.size > 1) found.push(["broken", word[0], text(node)]);
        }
    }
    for (const chart of document.querySelectorAll(".drawing svg")) {
        const room = chart.getBoundingClientRect();
        for (const node of chart.querySelectorAll("text")) {
            const box = node.getBoundingClientRect();
            const outside = Math.max(room.left - box.left, box.right - room.right, box.bottom - room.bottom);
            if (box.width && outside > 1) found.push(["chart", text(node)]);
        }
    }
    const labels = [...document.querySelectorAll("#chart-roofline .mark-text.role-mark text")];
    const places = labels.map((node) => node.getBoundingClientRect());
    places.forEach((one, number) => {
        for (const other of places.slice(number + 1)) {
            const across = Math.max(one.left, other.left) < Math.min(one.right, other.right);
            const down = Math.max(one.top, other.top) < Math.min(one.bottom, other.bottom);
            if (across && down) found.push(["labels over each other", text(labels[number])]);
        }
    });
    return found;
}
