"""The reference pages by path."""

from __future__ import annotations

from collections.abc import Callable

from scripts.reference import chart_values, check_language, checks, http_fields, listings, schemas, words

PAGES: dict[str, Callable[[], str]] = {
    "checks/tables/alerts.yaml": words.alerts_table,
    "checks/tables/metrics.yaml": words.metrics_table,
    "docs/decisions/index.md": listings.decisions,
    "docs/glossary.md": words.glossary,
    "docs/reference/chart-values.md": chart_values.chart_values,
    "docs/reference/check-language.md": check_language.check_language,
    "docs/reference/check.schema.json": schemas.check_schema,
    "docs/reference/cli.md": listings.cli,
    "docs/reference/http-api-fields.md": http_fields.http_fields,
    "docs/reference/log-events.md": listings.log_events,
    "docs/reference/metrics.md": listings.metrics,
    "docs/reference/nodeincident.md": schemas.incidents,
    "docs/reference/nodeaction.md": schemas.actions,
    "docs/reference/openapi.yaml": schemas.open_api,
    "docs/reference/policy.md": schemas.policy,
    "docs/reference/policy.schema.json": schemas.policy_schema,
    "docs/reference/signals.md": listings.signals,
    **checks.check_pages(),
}
