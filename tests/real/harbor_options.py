"""Prints the options of `harbor run`, the commands and the environments of the installed package, as JSON."""

import json

import typer
from harbor.cli.main import app
from harbor.models.environment_type import EnvironmentType

command = typer.main.get_command(app)
options = [[*option.opts, *option.secondary_opts] for option in command.commands["run"].params]
print(
    json.dumps(
        {
            "options": options,
            "commands": sorted(command.commands),
            "environments": [kind.value for kind in EnvironmentType],
        }
    )
)
