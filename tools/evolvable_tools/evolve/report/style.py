"""The style sheet of the page."""

STYLE = """
:root { color-scheme: light dark; --ink: #1d2329; --soft: #5d6873; --paper: #ffffff; --line: #d9dee3;
  --better: #1a7f4b; --worse: #b3372f; --equal: #7a8590; --accent: #2f5fb3; --fill: #f3f5f7; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --soft: #9aa5b0; --paper: #15191d; --line: #333b43;
  --better: #4cc38a; --worse: #f0776c; --equal: #8b96a1; --accent: #82a8ee; --fill: #1e242a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 60rem; color: var(--ink); background: var(--paper);
  font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .4rem; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
.said { color: var(--soft); margin: .2rem 0 .8rem; } .warning { color: var(--worse); }
.label { font-size: .8rem; padding: .15rem .5rem; border: 1px solid var(--line);
  border-radius: 1rem; color: var(--soft); }
.verdict { font-size: 1.05rem; padding: .9rem 1.1rem; border-left: 4px solid var(--equal); background: var(--fill); }
.verdict.promote { border-color: var(--better); } .verdict.harmful { border-color: var(--worse); }
svg { width: 100%; height: auto; display: block; overflow: visible; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); } svg .in-node { fill: var(--paper); font-size: 11px; }
svg .grid { stroke: var(--line); } svg .noise { fill: var(--equal); opacity: .22; }
svg .best { fill: none; stroke: var(--accent); stroke-width: 1.5; } svg .whisker { fill: none; stroke: var(--equal); }
svg .mark { fill: var(--accent); stroke: var(--paper); } svg .mark.base { fill: var(--ink); }
svg .mark .stroke { fill: none; stroke: var(--worse); stroke-width: 2; }
svg .mark .ring { fill: var(--paper); stroke: var(--equal); stroke-width: 2; }
svg .mark.unmeasured .stroke { stroke: var(--equal); } svg .mark.admitted { fill: var(--better); }
svg .mark.rejected .star { fill: var(--equal); }
svg .edge { fill: none; stroke: var(--line); stroke-width: 2; } svg .node { fill: var(--equal); stroke: var(--paper); }
svg .node.better { fill: var(--better); } svg .node.worse { fill: var(--worse); } svg .node.base { fill: var(--ink); }
svg .bar { fill: var(--accent); } svg .bar.all { fill: var(--ink); }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; overflow-wrap: normal; padding: .35rem .6rem;
  border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; } .numbers td { font-variant-numeric: tabular-nums; }
.heat { background: color-mix(in srgb, var(--better) calc(var(--heat) * 45%), var(--paper)); text-align: center; }
details { border-bottom: 1px solid var(--line); padding: .45rem 0; } td details { border: 0; padding: 0; }
summary { cursor: pointer; } .output { margin: .3rem 0; color: var(--soft); font-size: .85rem; }
.tag { font-size: .8rem; color: var(--soft); } .tag.better { color: var(--better); } .tag.worse { color: var(--worse); }
.diff { overflow-x: auto; background: var(--fill); padding: .7rem; }
.diff .added { color: var(--better); } .diff .taken { color: var(--worse); } .diff .place { color: var(--accent); }
.switch input { position: absolute; opacity: 0; }
.switch label { display: inline-block; margin: 0 .8rem .6rem 0; cursor: pointer;
  color: var(--soft); }
.switch input:checked + label { color: var(--ink); border-bottom: 2px solid var(--accent); }
.switch input:focus-visible + label { outline: 2px solid var(--accent); }
.over { display: none; } #over-iterations:checked ~ .over-iterations, #over-evaluations:checked ~ .over-evaluations,
#over-dollars:checked ~ .over-dollars { display: block; }
"""
