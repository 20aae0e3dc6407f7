"""One module per page: what it asks of the views. `PAGES` lists them in the order of the navigation."""

from haru.dashboard.asked import Page
from haru.dashboard.pages.map import cluster_map
from haru.dashboard.pages.namespace import namespace
from haru.dashboard.pages.overview import overview_page
from haru.dashboard.pages.place import device, node
from haru.dashboard.pages.queue import queue
from haru.dashboard.pages.search import search_page
from haru.dashboard.pages.timeline import timeline
from haru.dashboard.pages.usage import usage
from haru.dashboard.pages.whatif import whatif
from haru.dashboard.pages.workload import workload
from haru.dashboard.pages.yaml import yaml_page

PAGES: tuple[Page, ...] = (
    Page("/", "overview.html", overview_page, "Overview", "o"),
    Page("/map", "map.html", cluster_map, "Map", "m"),
    Page("/queue", "queue.html", queue, "Queue", "q"),
    Page("/timeline", "timeline.html", timeline, "Timeline", "t"),
    Page("/usage", "usage.html", usage, "Usage", "u"),
    Page("/whatif", "whatif.html", whatif, "What if", "w", still=True),
    Page("/workload/{namespace}/{kind}/{name}", "workload.html", workload),
    Page("/node/{name}", "node.html", node),
    Page("/device/{driver}/{pool:path}/{name}", "device.html", device),
    Page("/namespace/{name}", "namespace.html", namespace),
    Page("/search", "search.html", search_page),
    Page("/yaml/{kind}/{namespace}/{name}", "yaml.html", yaml_page, personal=True),
)
