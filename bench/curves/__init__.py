"""Growth of costs with the amount of work: `python -m bench curves`.

An *axis* (`axes.py`) says what is grown, how far, and what is measured at each point. Its *growth* (`growths`) brings a
server from one point to the next. A *subject* (`subject.py`) is the server, with the measurements that are made at it.
`walk.py` goes along an axis and makes a *curve*. Curves are written as JSON, which is all that verdicts
(`verdicts.py`), charts (`drawing.py`) and the page (`page.py`) are made of.
"""
