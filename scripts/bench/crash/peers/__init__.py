"""The same errand on other systems and on DevFix, under the same kills: what each leaves doubled, lost, or unsaid.

`programs` are what the others' documentation tells people to write, each run in an environment of its own;
`systems` starts them and asks them how a run stands, `comparison` strikes, `figures` counts at the shop.
"""
