//! Simple commands as a person skims them: their verb, and the files that they write.

/// Commands that change the last file that they name.
const COPIERS: [&str; 5] = ["cp", "mv", "ln", "install", "rsync"];
/// Commands that change all files that they name.
const CHANGERS: [&str; 15] = [
    "touch", "dd", "truncate", "rm", "rmdir", "mkdir", "chmod", "chown", "chattr", "mkfifo", "mount",
    "umount", "sed", "perl", "unlink",
];
/// Words before the command proper.
const PREFIXES: [&str; 18] = [
    "sudo", "nohup", "setsid", "exec", "time", "env", "command", "then", "else", "do", "if", "while",
    "until", "!", "bash", "sh", "-c", "-lc",
];
/// Words of commands that outlive the command.
const LASTING: [&str; 9] = [
    "nohup",
    "setsid",
    "disown",
    "crontab",
    "inotifywait",
    "systemd-run",
    "start-stop-daemon",
    "daemonize",
    "daemon",
];
/// Beginnings of endless loops.
const ENDLESS: [&str; 7] =
    ["while true", "while :", "while 1", "while sleep", "while True", "until false", "for (;;)"];
/// Programs that tests use, of which a script of the agent must not take the place.
pub(super) const TOOLS: [&str; 9] = ["pytest", "bash", "sh", "env", "cat", "tee", "python3", "uv", "uvx"];
/// Those of [`TOOLS`] that no installation by hand copies into place.
const NEVER_COPIED: [&str; 6] = ["pytest", "bash", "sh", "env", "cat", "tee"];
const PROGRAM_DIRS: [&str; 9] = [
    "/usr/local/sbin/",
    "/usr/local/bin/",
    "/usr/sbin/",
    "/usr/bin/",
    "/sbin/",
    "/bin/",
    "/root/.local/bin/",
    "~/.local/bin/",
    "$HOME/.local/bin/",
];

/// A file that a command writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written<'a> {
    pub(super) path: &'a str,
    pub(super) how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// The agent composes the content.
    Composed,
    /// The content is that of another file.
    Copied,
    /// The file is changed in another way.
    Changed,
}

impl How {
    /// The programs in whose place such a file is a sign.
    pub(super) fn tools(self) -> &'static [&'static str] {
        match self {
            Self::Composed => &TOOLS,
            Self::Copied => &NEVER_COPIED,
            Self::Changed => &[],
        }
    }
}

/// A simple command: its text, its first word, and its other words.
pub(super) struct Command<'a> {
    pub(super) text: &'a str,
    pub(super) verb: &'a str,
    words: Vec<&'a str>,
}

impl<'a> Command<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let trim = |word: &'a str| word.trim_matches(['"', '\'', '(', ')', '{', '}', '`', ',']);
        let words: Vec<_> = text.split_whitespace().map(trim).filter(|word| !word.is_empty()).collect();
        let is_before = |word: &&&str| PREFIXES.contains(*word) || is_assignment(word);
        let skipped = words.iter().take_while(is_before).count();
        let verb = words.get(skipped).copied().unwrap_or_default();
        let verb = verb.rsplit('/').next().unwrap_or(verb);
        Self { text, verb, words: words.get(skipped + 1..).unwrap_or_default().to_vec() }
    }

    /// Returns the files that the command writes, as far as its words show.
    pub(super) fn written(&self) -> impl Iterator<Item = Written<'_>> {
        let composes = self.verb == "tee";
        let copies = COPIERS.contains(&self.verb);
        let changes = CHANGERS.contains(&self.verb) && !self.only_reads();
        let words = || self.words.iter().copied().filter(|word| !word.starts_with(['-', '>']));
        let composed = redirections(self.text).chain(opened(self.text));
        let composed = composed.chain(words().filter(move |_| composes));
        let copied = words().next_back().filter(|_| copies).into_iter();
        let changed = words().filter(move |_| changes).map(|word| word.trim_start_matches("of="));
        let of = |how: How| move |path| Written { path, how };
        composed
            .map(of(How::Composed))
            .chain(copied.map(of(self.copies())))
            .chain(changed.map(of(How::Changed)))
    }

    /// A link to a program is a usual way to give it another name.
    fn copies(&self) -> How {
        if self.verb == "ln" { How::Changed } else { How::Copied }
    }

    /// Whether the command writes the directory or a file in it.
    pub(super) fn writes(&self, dir: &str) -> bool {
        self.written().any(|write| has_path(write.path, dir))
    }

    /// Whether a command that may write in place does not.
    fn only_reads(&self) -> bool {
        let in_place = || self.words.iter().any(|word| word.starts_with("-i") || word.starts_with("-pi"));
        match self.verb {
            "sed" | "perl" => !in_place(),
            _ => false,
        }
    }

    /// Whether a program that tests use is moved away, so that a script can call it under its new name.
    pub(super) fn renames_a_tool(&self) -> bool {
        let first = self.words.iter().find(|word| !word.starts_with('-'));
        self.verb == "mv"
            && first.is_some_and(|first| {
                tool_paths(&NEVER_COPIED).chain(tool_paths(&["python3"])).any(|tool| tool == *first)
            })
    }
}

/// Returns the paths at which these programs usually are.
pub(super) fn tool_paths(tools: &[&str]) -> impl Iterator<Item = String> {
    PROGRAM_DIRS.iter().flat_map(move |dir| tools.iter().map(move |tool| format!("{dir}{tool}")))
}

/// Whether the text starts a process that remains after it.
pub(super) fn lasts(text: &str) -> bool {
    let is_endless = ENDLESS.iter().any(|start| text.contains(start));
    let mut words = text.split(|char: char| char.is_whitespace() || ";|()\"'".contains(char));
    let byte = |at: Option<usize>| at.and_then(|at| text.as_bytes().get(at));
    // `&&`, `>&` and `&>` start no process.
    let is_background = |at: usize| {
        let beside = [byte(at.checked_sub(1)), byte(at.checked_add(1))];
        !beside.into_iter().flatten().any(|byte| b"&>".contains(byte))
    };
    let mut ampersands = text.match_indices('&');
    is_endless || words.any(|word| LASTING.contains(&word)) || ampersands.any(|(at, _)| is_background(at))
}

/// Splits a script into simple commands, without its comments. Quotes are ignored, so that the commands in `sh -c '…'`
/// are split too.
pub(super) fn parts(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let commands = lines.flat_map(|line| line.split([';', '|']).flat_map(|part| part.split("&&")));
    commands.map(str::trim).filter(|part| !part.is_empty())
}

fn is_assignment(word: &str) -> bool {
    // A word such as `D=/logs` is a command of its own if nothing follows, and then it has no verb.
    let Some((name, _)) = word.split_once('=') else { return false };
    !name.is_empty() && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_')
}

/// Returns the targets of `>`, `>>` and `>|`.
fn redirections<'a>(text: &'a str) -> impl Iterator<Item = &'a str> {
    let after = text.match_indices('>').filter_map(|(at, _)| text.get(at + 1..));
    let after = after.map(|rest| rest.trim_start_matches(['>', '|', ' ', '"', '\'']));
    let target = |rest: &'a str| {
        let end = rest.find(|char: char| char.is_whitespace() || ";&|\"')".contains(char));
        rest.get(..end.unwrap_or(rest.len()))
    };
    after.filter_map(target).filter(|path| !path.is_empty())
}

/// Returns the files that the text opens for writing in the manner of Python: `open("x", "w")`, `Path("x").write_text(`.
fn opened(text: &str) -> impl Iterator<Item = &str> {
    let is_written = || ["'w", "\"w", "'a", "\"a", "'x", "\"x"].iter().any(|mode| text.contains(mode));
    let is_open = text.contains("open(") && is_written();
    let is_path =
        text.contains(".write_text(") || text.contains(".write_bytes(") || text.contains("writeFile");
    text.split(['"', '\'']).filter(move |word| (is_open || is_path) && word.contains('/'))
}

/// Whether the text has the path or a path below it, and not only as a part of another path.
pub(super) fn has_path(text: &str, path: &str) -> bool {
    let is_of_name = |char: char| char.is_alphanumeric() || "_-".contains(char);
    text.match_indices(path).any(|(at, _)| {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let mut after = text.get(at + path.len()..).unwrap_or_default().chars();
        let is_start = before.is_none_or(|char| !is_of_name(char) && !"./~}".contains(char));
        let is_end = match after.next() {
            Some('.') => !after.next().is_some_and(is_of_name),
            Some(char) => !is_of_name(char),
            None => true,
        };
        is_start && is_end
    })
}
