"""The page: a read-only view of a running server for a browser, `txnctl page`.

It is a process of its own and a client of the SDK, with the credentials of the user that has logged in. So it cannot
hold up the server, and shows each user what that user may see. The packages are those of the extra `page`.

- `source` asks the server, and is the only module that knows how; `looking` looks into a topic.
- `logins` keeps the credentials of the users that are logged in.
- `overview`, `transactions`, `topics`, `groups` and `operations` have the views: each asks, and returns the values that
  a template of the same name shows. `words` turns values into text, `timeline` and `charts` into coordinates of
  drawings.
- `app` joins them: routes, headers, errors. `serving` runs it.

There is no script in any page. Templates escape everything, and the policy of the headers forbids what they did not
escape.
"""
