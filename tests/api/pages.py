"""Lists and tables of the API as a client reads them."""

import csv
import io


def rows_of(response):
    """The rows of a table, checked to be one."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/csv; charset=utf-8; header=present"
    return list(csv.DictReader(io.StringIO(response.content.decode("utf-8"), newline="")))


def all_items(client, path, **query):
    """Everything of a list, page by page, by the links that the pages give."""
    items = []
    response = client.get(path, params=query)
    while True:
        assert response.status_code == 200, response.text
        page = response.json()
        items += page["items"]
        link = response.links.get("next")
        assert (link is None) == (page["next_cursor"] is None)
        if link is None:
            return items
        response = client.get(link["url"])
