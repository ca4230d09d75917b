from __future__ import annotations

from nodeguard.config.schema_text import with_clean_descriptions


def test_descriptions_have_no_indentation_and_properties_of_that_name_stay() -> None:
    schema = {
        "description": "A node.\n\n    name: its name.\n    ",
        "properties": {"description": {"type": "string", "description": "Text.\n        More."}},
        "anyOf": [{"description": "Other.\n\n    Text."}],
    }
    assert with_clean_descriptions(schema) == {
        "description": "A node.\n\nname: its name.",
        "properties": {"description": {"type": "string", "description": "Text. More."}},
        "anyOf": [{"description": "Other.\n\nText."}],
    }
