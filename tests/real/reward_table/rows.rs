//! The rows: one task each, and its outcome by Harbor's rules.

use serde_json::{Value, json};

use super::Seen;

/// A task and its expected outcome.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) toml: String,
    pub(super) solve: String,
    pub(super) test: String,
    pub(super) files: Vec<(&'static str, String)>,
    pub(super) rewards: Value,
    pub(super) exception: Option<&'static str>,
    pub(super) verified: bool,
    difference: Option<&'static str>,
}

impl Row {
    /// Returns whether rolltap's outcome equals Harbor's, except for an intended difference.
    pub(super) fn is_as(&self, ours: &Seen, harbors: &Seen) -> bool {
        match self.difference {
            None => {
                ours.rewards == harbors.rewards
                    && ours.exception == harbors.exception
                    && ours.verified == harbors.verified
                    && ours.steps == harbors.steps
                    && ours.manifest == harbors.manifest
            }
            Some(exception) => harbors.exception == exception && ours.verified == harbors.verified,
        }
    }

    /// Expects this exception from Harbor, and another outcome from rolltap, on purpose.
    fn unlike_harbor(self, exception: &'static str) -> Self {
        Self { difference: Some(exception), ..self }
    }

    fn solve(self, solve: &str) -> Self {
        Self { solve: solve.to_owned(), ..self }
    }

    fn toml(self, more: &str) -> Self {
        Self { toml: format!("{}{more}", self.toml), ..self }
    }

    fn file(mut self, name: &'static str, contents: &str) -> Self {
        self.files.push((name, contents.to_owned()));
        self
    }

    fn rewards(self, rewards: Value) -> Self {
        Self { rewards, ..self }
    }

    fn exception(self, name: &'static str) -> Self {
        Self { exception: Some(name), ..self }
    }

    fn not_verified(self) -> Self {
        Self { verified: false, ..self }
    }
}

/// Returns every row, with containers of this image.
pub(super) fn rows(image: &str) -> Vec<Row> {
    let row = |name, test: &str| Row {
        name,
        toml: format!("[environment]\ndocker_image = \"{image}\"\n"),
        solve: "true".to_owned(),
        test: test.to_owned(),
        files: Vec::new(),
        rewards: Value::Null,
        exception: None,
        verified: true,
        difference: None,
    };
    let text = |name, reward: &str| row(name, &format!("printf '{reward}' > /logs/verifier/reward.txt"));
    let object = |name, reward: &str| row(name, &format!("printf '{reward}' > /logs/verifier/reward.json"));
    let one = |name| text(name, "1").rewards(json!({"reward": 1.0}));
    let mut rows = vec![
        row("none", "true").exception("RewardFileNotFoundError"),
        text("empty-text", "").exception("RewardFileEmptyError"),
        object("empty-json", "").exception("RewardFileEmptyError"),
        text("words", "pass").exception("VerifierOutputParseError"),
        text("nan", "NaN").exception("VerifierOutputParseError"),
        text("number", " 0.5\\n").rewards(json!({"reward": 0.5})),
        object("several", "{\"reward\": 1, \"style\": 0.5}").rewards(json!({"reward": 1.0, "style": 0.5})),
        object("bool", "{\"reward\": true}").rewards(json!({"reward": 1.0})),
        object("no-number", "{}").rewards(json!({})),
        object("string", "{\"reward\": \"1\"}").exception("VerifierOutputParseError"),
        object("nested", "{\"reward\": {\"a\": 1}}").exception("VerifierOutputParseError"),
        object("list", "[0.5]").exception("VerifierOutputParseError"),
        object("scalar", "0.5").exception("ValidationError"),
        row("json-wins", "cd /logs/verifier; echo 1 > reward.txt; echo '{\"reward\": 0.25}' > reward.json")
            .rewards(json!({"reward": 0.25})),
        row("exit-code", "echo 0.5 > /logs/verifier/reward.txt; exit 3").rewards(json!({"reward": 0.5})),
        row("stale", "true").solve("echo 1 > /logs/verifier/reward.txt").exception("RewardFileNotFoundError"),
    ];
    rows.extend([
        row("verifier-timeout", "echo 1 > /logs/verifier/reward.txt; sleep 60")
            .toml("[verifier]\ntimeout_sec = 2\n")
            .exception("VerifierTimeoutError"),
        text("agent-timeout", "0.3")
            .toml("[agent]\ntimeout_sec = 2\n")
            .solve("sleep 60")
            .rewards(json!({"reward": 0.3}))
            .exception("AgentTimeoutError"),
        one("agent-ignores-sigterm")
            .toml("[agent]\ntimeout_sec = 2\n")
            .solve("trap '' TERM INT HUP; while true; do sleep 1; done")
            .exception("AgentTimeoutError"),
        text("agent-fails", "0").solve("exit 3").rewards(json!({"reward": 0.0})),
        one("agent-leaves-a-process").solve("setsid sleep 1000 < /dev/null > /dev/null 2>&1 & disown"),
        one("agent-prints").solve("head -c 50000000 /dev/zero | tr '\\0' x"),
        // The agent's work is verified all the same.
        one("agent-deletes-logs").solve("rm -rf /logs").unlike_harbor("DownloadVerifierDirError"),
        one("agent-fills-a-disk").solve("cat /dev/zero > /dev/shm/full"),
        one("build-failure")
            .file("environment/Dockerfile", &format!("FROM {image}\nRUN exit 7\n"))
            .rewards(Value::Null)
            .exception("SandboxBuildFailedError")
            .not_verified()
            // rolltap distinguishes this failure from others: Harbor's environments of other providers use this name
            // for it.
            .unlike_harbor("RuntimeError"),
        one("unhealthy")
            .toml("[environment.healthcheck]\ncommand = \"exit 1\"\ninterval_sec = 0.1\nretries = 2\n")
            .rewards(Value::Null)
            .exception("HealthcheckError")
            .not_verified(),
        row("users", "echo \"{\\\"reward\\\": $(id -u), \\\"agent\\\": $(cat /tmp/who)}\" > /logs/verifier/reward.json")
            .toml("[agent]\nuser = 1234\n[verifier]\nuser = 4321\n")
            .solve("id -u > /tmp/who; chmod 644 /tmp/who")
            .rewards(json!({"reward": 4321.0, "agent": 1234.0})),
        one("canary").file("instruction.md", "<!-- canary -->\n\nDo it.\n"),
    ]);
    rows.extend(artifacts(&one));
    rows.extend(steps(&one));
    for row in &mut rows {
        if row.name == "build-failure" {
            row.toml = String::new();
        }
    }
    rows
}

fn artifacts(one: &dyn Fn(&'static str) -> Row) -> Vec<Row> {
    let named = "artifacts = [\"/root/a.txt\", { source = \"/root/d\", destination = \"kept\", exclude = [\"*.tmp\"] }, \
                 \"/root/missing\", \"/root/d/x\"]\n";
    let solve = "mkdir -p /root/d/deep; echo a > /root/a.txt; touch /root/d/x /root/d/deep/y.tmp; echo s > /root/state";
    let collected = one("artifacts").solve(solve);
    let collected = Row { toml: format!("{named}{}", collected.toml), ..collected };
    let apart = one("separate-verifier").solve(solve);
    let test = "test -e /root/a.txt && test -e /root/d/x && test ! -e /root/state && test ! -e /root/d/deep/y.tmp \
                && cat /root/dump && echo 1 > /logs/verifier/reward.txt";
    let collect = "[verifier]\nenvironment_mode = \"separate\"\n[[verifier.collect]]\ncommand = \"cp /root/state /root/dump\"\n";
    let apart = Row {
        toml: format!("{}{}{collect}", named.replace("\"/root/missing\"", "\"/root/dump\""), apart.toml),
        test: test.to_owned(),
        ..apart
    };
    vec![collected, apart]
}

fn steps(one: &dyn Fn(&'static str) -> Row) -> Vec<Row> {
    let stepped = |name, toml: &str| {
        let row = one(name)
            .toml(toml)
            .file("steps/a/instruction.md", "a")
            .file("steps/b/instruction.md", "b")
            .file("steps/b/workdir/setup.sh", "touch /root/set-up\n")
            .file(
                "steps/b/solution/solve.sh",
                "#!/bin/bash\ntest -e /root/set-up && test ! -e /tests/test.sh && echo 0.5 > /root/r\n",
            );
        Row {
            solve: "echo 1 > /root/r".to_owned(),
            test: "cat /root/r > /logs/verifier/reward.txt".to_owned(),
            ..row
        }
    };
    vec![
        stepped("steps-mean", "[[steps]]\nname = \"a\"\n[[steps]]\nname = \"b\"\n")
            .rewards(json!({"reward": 0.75})),
        stepped("steps-abort", "[[steps]]\nname = \"a\"\nmin_reward = 2\n[[steps]]\nname = \"b\"\n")
            .rewards(json!({"reward": 1.0})),
        stepped("steps-setup-fails", "[[steps]]\nname = \"a\"\n[[steps]]\nname = \"b\"\n")
            .file("steps/b/workdir/setup.sh", "exit 5\n")
            .rewards(json!({"reward": 1.0})),
        stepped(
            "steps-timeout",
            "[[steps]]\nname = \"a\"\n[steps.agent]\ntimeout_sec = 2\n[[steps]]\nname = \"b\"\n",
        )
        .file("steps/a/workdir/setup.sh", "echo 0.25 > /root/r\n")
        .file("steps/a/solution/solve.sh", "#!/bin/bash\nsleep 60\n")
        .rewards(json!({"reward": 0.375})),
    ]
    .into_iter()
    .map(|row| Row { verified: false, ..row })
    .chain([final_of_steps(stepped("steps-final", "[[steps]]\nname = \"a\"\n[[steps]]\nname = \"b\"\n"))])
    .collect()
}

/// Puts the key at the top of the file.
fn final_of_steps(row: Row) -> Row {
    let toml = format!("multi_step_reward_strategy = \"final\"\n{}", row.toml);
    Row { toml, verified: false, ..row }.rewards(json!({"reward": 0.5}))
}
