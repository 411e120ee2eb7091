//! What is done inside an environment between its agent's time and its tests'.

use crate::common::shell::quoted;
use crate::environment::{Environment, EnvironmentError};

/// A directory to be emptied.
pub(super) struct Emptied<'a> {
    /// Where it is, as Harbor or the environment spells it.
    pub(super) dir: &'a str,
    /// Anyone may write there.
    pub(super) is_open: bool,
}

/// Afterwards each directory is there, and nothing is in it. One command, because each costs some 50 ms.
pub(super) async fn make_empty(
    environment: &Environment,
    dirs: &[Emptied<'_>],
) -> Result<(), EnvironmentError> {
    if dirs.is_empty() {
        return Ok(());
    }
    let commands = dirs.iter().map(|Emptied { dir, is_open }| {
        let dir = environment.instruction(&quoted(dir));
        // What an agent may have put in its place goes.
        let replace = format!("if [ -L {dir} ] || [ ! -d {dir} ]; then rm -rf {dir} && mkdir -p {dir}; fi");
        let empty = format!("(cd {dir} && rm -rf -- * .[!.]* ..?*)");
        let open = if *is_open { format!(" && chmod 777 {dir}") } else { String::new() };
        format!("{replace} && {empty}{open}")
    });
    environment.arrange(commands.collect::<Vec<_>>().join(" && ")).await
}
