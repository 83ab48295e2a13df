"""Every address of the service."""

from __future__ import annotations

from litestar import Router
from litestar.types import ControllerRouterHandler

from service.access.scopes import Scope
from service.api.access import needs
from service.api.dependencies import DEPENDENCIES
from service.api.docs_page import get_docs_page, get_docs_part, get_openapi
from service.api.metrics import get_metrics
from service.api.v1 import (
    catalog,
    comparisons,
    plan_deployment,
    plan_files,
    plan_making,
    plan_tables,
    plans,
    price_books,
)
from service.api.v1.estimates_fleet import estimate_demand, estimate_pools
from service.api.v1.estimates_money import estimate_crossover, estimate_ownership
from service.api.v1.estimates_serving import (
    estimate_roofline,
    estimate_serving_memory,
    estimate_serving_performance,
    estimate_serving_size,
)
from service.api.v1.estimates_training import (
    estimate_communication,
    estimate_goodput,
    estimate_training_layouts,
    estimate_training_memory,
    estimate_training_run,
)
from service.api.v1.health import get_liveness, get_readiness

STORED = Router(
    "/",
    dependencies=DEPENDENCIES,
    opt=needs(Scope.PLAN_READ),
    route_handlers=[
        catalog.list_catalog_releases,
        catalog.export_catalog_releases_csv,
        catalog.get_catalog_release,
        catalog.retire_catalog_release,
        *catalog.collection_handlers(),
        plan_making.create_plan,
        plan_making.create_replan,
        plans.list_plans,
        plans.export_plans_csv,
        plans.get_plan,
        plan_tables.list_plan_lines,
        plan_tables.export_plan_lines_csv,
        plan_tables.list_plan_quantities,
        plan_tables.export_plan_quantities_csv,
        plan_files.export_plan_summary_csv,
        plan_files.export_plan_months_csv,
        plan_files.export_plan_focus_csv,
        plan_files.export_plan_workbook,
        plan_files.get_plan_charge_back,
        plan_files.export_plan_charge_back_csv,
        plan_deployment.export_plan_kubernetes,
        plan_deployment.get_plan_launch,
        price_books.list_price_books,
        price_books.create_price_book,
        price_books.get_price_book,
        price_books.replace_price_book,
        price_books.delete_price_book,
        estimate_ownership,
        estimate_crossover,
        estimate_training_layouts,
        estimate_training_memory,
        estimate_training_run,
        estimate_communication,
        estimate_goodput,
        estimate_serving_memory,
        estimate_serving_performance,
        estimate_roofline,
        estimate_serving_size,
        estimate_demand,
        estimate_pools,
        comparisons.compare_plans,
        comparisons.export_comparison_csv,
    ],
)
ROUTE_HANDLERS: tuple[ControllerRouterHandler, ...] = (
    get_liveness,
    get_readiness,
    get_metrics,
    get_openapi,
    get_docs_page,
    get_docs_part,
    STORED,
)
