// Entries that have all words of the search, those with a word in their heading first.
(function () {
    const input = document.getElementById("search");
    const found = document.getElementById("found");
    const up = document.body.dataset.up;
    const SHOWN_MAX = 20;

    function score(entry, words) {
        const heading = entry[2].toLowerCase();
        const rest = (entry[1] + " " + entry[3]).toLowerCase();
        let sum = 0;
        for (const word of words) {
            if (heading === word) sum += 100;
            else if (heading.startsWith(word)) sum += 20;
            else if (heading.includes(word)) sum += 10;
            else if (rest.includes(word)) sum += 1;
            else return 0;
        }
        return sum;
    }

    input.addEventListener("input", function () {
        const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
        found.replaceChildren();
        if (words.length === 0) return;
        const hits = window.SEARCH_INDEX
            .map(entry => [score(entry, words), entry])
            .filter(hit => hit[0] > 0)
            .sort((a, b) => b[0] - a[0]);
        for (const [, entry] of hits.slice(0, SHOWN_MAX)) {
            const link = document.createElement("a");
            link.href = up + entry[0];
            link.textContent = entry[2] === entry[1] ? entry[2] : entry[2] + " (" + entry[1] + ")";
            link.title = entry[3].slice(0, 200);
            const item = document.createElement("li");
            item.append(link);
            found.append(item);
        }
    });
})();
