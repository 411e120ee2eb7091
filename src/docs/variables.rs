//! The environment variables that no option of the command line declares.

/// Why a name is in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// rolltap reads it.
    Read,
    /// rolltap sets it for the processes that it starts.
    Set,
    /// The Python package reads it.
    Python,
}

pub(super) struct Variable {
    pub(super) name: &'static str,
    pub(super) used: Use,
    /// Sentences.
    pub(super) meaning: &'static str,
}

const fn variable(used: Use, name: &'static str, meaning: &'static str) -> Variable {
    Variable { name, used, meaning }
}

/// Every variable without an option, in the order of the page.
pub(super) const VARIABLES: [Variable; 48] = [
    variable(
        Use::Read,
        "ROLLTAP_LOG",
        "Filter of the log, such as `rolltap_proxy=debug,info`. It replaces the level of `--verbose`.",
    ),
    variable(
        Use::Read,
        "OTEL_SDK_DISABLED",
        "`true` switches traces off, even if an OpenTelemetry collector is set.",
    ),
    variable(
        Use::Read,
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "Protocol of traces. rolltap supports `http/protobuf` only, and refuses to start traces with another one.",
    ),
    variable(
        Use::Read,
        "ROLLTAP_CACHE_DIR",
        "Directory of installed agents. The default is `rolltap` in the cache of the user.",
    ),
    variable(
        Use::Read,
        "ROLLTAP_PYTHON",
        "Python interpreter for agents that are Python packages, before those on `PATH`, of pyenv and of uv.",
    ),
    variable(
        Use::Read,
        "NOTIFY_SOCKET",
        "Socket of systemd, which `rolltap proxy` notifies when it is ready and when it stops.",
    ),
    variable(
        Use::Read,
        "https_proxy",
        "HTTP proxy for requests to servers with `https` that are not calls: spans, object storage, and the admin plane of \
         `--proxy`. Also in upper case, like the next three. Servers on loopback need none.",
    ),
    variable(Use::Read, "http_proxy", "The same for servers without TLS."),
    variable(Use::Read, "all_proxy", "HTTP proxy for servers for which neither of these names one."),
    variable(Use::Read, "no_proxy", "Hosts and networks that need no HTTP proxy, with commas between them."),
    variable(
        Use::Read,
        "SSL_CERT_FILE",
        "File with the authorities that clients of rolltap trust, in place of those of the system.",
    ),
    variable(
        Use::Read,
        "AWS_ACCESS_KEY_ID",
        "Name of the key for object storage with the S3 protocol (`s3://…`).",
    ),
    variable(Use::Read, "AWS_SECRET_ACCESS_KEY", "Secret of that key."),
    variable(Use::Read, "AWS_SESSION_TOKEN", "Session of that key, if it is a temporary one."),
    variable(Use::Read, "AWS_REGION", "Region of the bucket. The default is `us-east-1`."),
    variable(Use::Read, "AWS_DEFAULT_REGION", "The same, without `AWS_REGION`."),
    variable(
        Use::Read,
        "AWS_ENDPOINT_URL_S3",
        "URL of the object storage, `http://HOST[:PORT]` or `https://HOST[:PORT]`. The default is that of AWS.",
    ),
    variable(Use::Read, "AWS_ENDPOINT_URL", "The same, without `AWS_ENDPOINT_URL_S3`."),
    variable(
        Use::Read,
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "File with the identity of a pod, which replaces the key, together with `AWS_ROLE_ARN`.",
    ),
    variable(Use::Read, "AWS_ROLE_ARN", "Role of that identity."),
    variable(Use::Read, "AWS_ROLE_SESSION_NAME", "Name of the session in that role."),
    variable(
        Use::Read,
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "Path at which a container on ECS gets a temporary key.",
    ),
    variable(
        Use::Read,
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "URL at which a pod on EKS gets a temporary key, with the next variable.",
    ),
    variable(Use::Read, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "File with the token for that URL."),
    variable(
        Use::Read,
        "DOCKER_HOST",
        "Address of the Docker engine. The default is `unix:///var/run/docker.sock`.",
    ),
    variable(Use::Read, "XDG_CACHE_HOME", "Cache of the user. The default is `~/.cache`."),
    variable(
        Use::Read,
        "HOME",
        "Home of the user: the default of the cache, and the interpreters of pyenv and uv.",
    ),
    variable(
        Use::Read,
        "TERM",
        "Type of the terminal. With `dumb`, or without the variable, output has no colours.",
    ),
    variable(Use::Read, "PYENV_ROOT", "Directory of pyenv. The default is `~/.pyenv`."),
    variable(
        Use::Read,
        "PATH",
        "Directories of the programs that rolltap starts. The environment `local` hands it to its commands.",
    ),
    variable(
        Use::Read,
        "LANG",
        "The environment `local` hands it to its commands. The default is `C.UTF-8`.",
    ),
    variable(
        Use::Read,
        "USER",
        "The environment `local` hands it to its commands, also as `LOGNAME`. The default is `root`.",
    ),
    variable(Use::Read, "TMPDIR", "Directory of temporary files. The default is `/tmp`."),
    variable(Use::Set, "ROLLTAP_INSTRUCTION", "For agent `command`: the instruction, if it is short enough."),
    variable(Use::Set, "ROLLTAP_INSTRUCTION_FILE", "For agent `command`: the file with the instruction."),
    variable(
        Use::Set,
        "ROLLTAP_MCP_SERVERS",
        "For agent `command`: the MCP servers of the task, as a JSON list.",
    ),
    variable(
        Use::Set,
        "ROLLTAP_SKILLS_DIR",
        "For agent `command`: the directory with the skills of the task.",
    ),
    variable(
        Use::Set,
        "ROLLTAP_TRAJECTORY_FILE",
        "For agent `command`: the file with the trajectory that the task provides.",
    ),
    variable(Use::Set, "ROLLTAP_LAYER", "For the install script of an agent: the directory to install into."),
    variable(Use::Set, "ROLLTAP_VERSION", "For the install script of an agent: the version to install."),
    variable(
        Use::Set,
        "ROLLTAP_FILE_",
        "For the set-up script of an installed agent: the content of a file. A number follows the name.",
    ),
    variable(Use::Set, "ROLLTAP_TRIAL_KEY", "For Harbor's agents: the key of the trial."),
    variable(Use::Set, "ROLLTAP_KEY", "For agents `codex` and `opencode`: the key of the trial."),
    variable(Use::Set, "ROLLTAP_EXEC", "Mark of all processes that one command starts."),
    variable(Use::Set, "ROLLTAP_ENVIRONMENT", "Mark of all processes that one environment `local` starts."),
    variable(
        Use::Python,
        "ROLLTAP_PROGRAM",
        "Program that the Python package starts. The default is the `rolltap` of the Python environment, else that on \
         `PATH`.",
    ),
    variable(
        Use::Python,
        "ROLLTAP_TASK",
        "Task of the agent, as JSON, in a runner that the controller of Agent Lightning starts.",
    ),
    variable(Use::Python, "ROLLTAP_ENV_TOKEN", "Token of the environment server, for its clients."),
];
