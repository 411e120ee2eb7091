//! tmux's commands as shell scripts, and the parser of their output.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::super::TerminalSize;
use crate::keys;

/// The configuration of a new session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TmuxSession {
    /// The name: letters, digits, `-` and `_`.
    pub name: String,
    /// The socket of the server, if not the default socket, where a human finds the session with `tmux attach`.
    pub socket: Option<String>,
    /// The size of the window.
    pub size: TerminalSize,
    /// Environment variables of the shell.
    pub env: BTreeMap<String, String>,
}

/// The number of stored lines that have scrolled off. It is more than an observation shows, and small enough to read at
/// once.
pub(super) const HISTORY_LIMIT: u64 = 10_000;
/// The maximal length of typed text in bytes. Longer text does not fit into one message to tmux's server, which accepts
/// 16 kB.
const LONGEST_TEXT: usize = 8_000;
/// The number of bytes whose Base64 form fits into one argument of a command, which Linux limits to 128 KiB.
const CHUNK: usize = 48 * 1024;
/// The separator between the two captures of a look. No line of a terminal contains this character.
const BETWEEN: char = '\u{c}';

impl TmuxSession {
    fn tmux(&self) -> String {
        match &self.socket {
            Some(socket) => format!("tmux -u -S {}", quoted(socket)),
            None => "tmux -u".to_owned(),
        }
    }

    fn target(&self) -> String {
        format!("-t {}", quoted(&self.name))
    }

    /// Starts the session. The history limit applies to windows that are created later, so it comes first.
    pub(super) fn start(&self) -> String {
        let mut script = String::from("export TERM=xterm-256color\n");
        for (name, value) in &self.env {
            let _ = writeln!(script, "export {name}={}", quoted(value));
        }
        let TerminalSize { rows, cols } = self.size;
        // A zero counts as one, as in the emulator.
        let (rows, cols) = (rows.max(1), cols.max(1));
        let name = quoted(&self.name);
        // A login shell, so that the environment's profile applies. Not every image has bash.
        let shell = quoted("if command -v bash >/dev/null 2>&1; then exec bash --login; fi; exec sh -l");
        let _ = write!(
            script,
            "{} -f /dev/null start-server \\; set-option -g history-limit {HISTORY_LIMIT} \\; set-option -g status off \
             \\; new-session -d -s {name} -x {cols} -y {rows} {shell}",
            self.tmux()
        );
        script
    }

    pub(super) fn is_alive(&self) -> String {
        format!("{} has-session {}", self.tmux(), self.target())
    }

    pub(super) fn forget(&self) -> String {
        format!("{} clear-history {}", self.tmux(), self.target())
    }

    /// Prints the screen only.
    pub(super) fn screen(&self) -> String {
        format!("{} capture-pane -p -J {}", self.tmux(), self.target())
    }

    /// Prints the number of lines that have scrolled off, and whether a program uses the alternate screen. Then prints
    /// everything from the start of the screen at the time when `scrolled` lines had scrolled off, and the current
    /// screen.
    pub(super) fn look(&self, scrolled: u64) -> String {
        let (tmux, target) = (self.tmux(), self.target());
        format!(
            "set -- $({tmux} display-message -p {target} '#{{history_size}} #{{alternate_on}}') && [ \"$2\" ] || exit 1\n\
             from=$(({scrolled} - $1)); [ \"$from\" -le 0 ] || from=0\n\
             echo \"$1 $2\" && {tmux} capture-pane -p -J {target} -S \"$from\" && printf '\\f' && {tmux} capture-pane -p -J {target}"
        )
    }

    /// Returns the commands that type these keystrokes, which must not be empty.
    pub(super) fn send_keys(&self, keystrokes: &str) -> Vec<String> {
        let (tmux, target) = (self.tmux(), self.target());
        if keys::is_key(keystrokes) {
            return vec![format!("{tmux} send-keys {target} -- {}", quoted(keystrokes))];
        }
        if keystrokes.len() > LONGEST_TEXT || keystrokes.contains('\0') {
            return self.paste(keystrokes);
        }
        // tmux takes a semicolon at the end of an argument as the end of its command.
        let text = match keystrokes.strip_suffix(';') {
            Some(text) => format!("{text}\\;"),
            None => keystrokes.to_owned(),
        };
        vec![format!("{tmux} send-keys -l {target} -- {}", quoted(&text))]
    }

    /// Types through a file and a tmux buffer, both of which can have any size.
    fn paste(&self, text: &str) -> Vec<String> {
        let (tmux, target) = (self.tmux(), self.target());
        let file = quoted(&format!("/tmp/.{}-keystrokes", self.name));
        let mut commands = Vec::new();
        for (number, chunk) in text.as_bytes().chunks(CHUNK).enumerate() {
            // The first chunk truncates the file, which an interrupted paste may have left.
            let redirect = if number == 0 { ">" } else { ">>" };
            commands.push(format!("printf %s {} | base64 -d {redirect} {file}", STANDARD.encode(chunk)));
        }
        let buffer = quoted(&format!("{}-keystrokes", self.name));
        commands.push(format!(
            "{tmux} load-buffer -b {buffer} {file} && {tmux} paste-buffer -d -r -b {buffer} {target}; did=$?; rm -f {file}; exit $did"
        ));
        commands
    }
}

/// Quotes a text as one shell word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The result of a look.
#[derive(Debug, PartialEq)]
pub(super) struct Look {
    /// The number of lines that have scrolled off.
    pub(super) scrolled: u64,
    /// Whether a program uses the alternate screen.
    pub(super) alternate: bool,
    /// The text from the start of the screen at the last look.
    pub(super) since: String,
    pub(super) screen: String,
}

impl Look {
    pub(super) fn read(printed: &str) -> Option<Self> {
        // Malformed output counts as a failed look rather than as an empty screen.
        let (head, pictures) = printed.split_once('\n')?;
        let (scrolled, alternate) = head.split_once(' ')?;
        let (since, screen) = pictures.split_once(BETWEEN)?;
        Some(Self {
            scrolled: scrolled.parse().ok()?,
            alternate: alternate.trim() == "1",
            since: plain(since),
            screen: plain(screen),
        })
    }
}

/// Removes blanks at the ends of lines and blank lines at the end.
pub(super) fn plain(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(|line| line.trim_end_matches(' ')).collect();
    lines.join("\n").trim_end_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn session() -> TmuxSession {
        TmuxSession { name: "s".into(), ..TmuxSession::default() }
    }

    #[test]
    fn keys_are_named_and_text_is_typed() {
        for (keystrokes, command) in [
            ("C-c", "tmux -u send-keys -t 's' -- 'C-c'"),
            ("ls\n", "tmux -u send-keys -l -t 's' -- 'ls\n'"),
            ("-x'y", "tmux -u send-keys -l -t 's' -- '-x'\\''y'"),
            ("a;", "tmux -u send-keys -l -t 's' -- 'a\\;'"),
        ] {
            assert_eq!(session().send_keys(keystrokes), [command], "{keystrokes}");
        }
    }

    #[test]
    fn long_text_goes_through_a_file_in_pieces() {
        let text = "é".repeat(60_000);
        let commands = session().send_keys(&text);
        let (last, pieces) = commands.split_last().unwrap();
        assert!(last.contains("load-buffer") && last.contains("rm -f"));
        assert!(commands.iter().all(|command| command.len() < 100_000));
        let decoded: Vec<u8> = pieces
            .iter()
            .flat_map(|piece| STANDARD.decode(piece.split(' ').nth(2).unwrap()).unwrap())
            .collect();
        assert_eq!(decoded, text.as_bytes());
    }

    #[test]
    fn a_look_is_read() {
        let look = Look::read("12 0\n$ ls  \na b\n$ \n\n\n\u{c}a b\n$\n\n").unwrap();
        let expected =
            Look { scrolled: 12, alternate: false, since: "$ ls\na b\n$".into(), screen: "a b\n$".into() };
        assert_eq!(look, expected);
        assert_eq!(Look::read("no server running"), None);
    }

    proptest! {
        #[test]
        fn any_print_is_read_without_panic(text in "[0-9 \n\u{c}a]{0,40}") {
            let _read = Look::read(&text);
        }
    }
}
