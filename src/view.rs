//! `rolltap view`

use std::path::PathBuf;

use clap::Args;
use indicatif::ProgressBar;
use rolltap_viewer::{Collection, Server, read_tokenizer, trial_text, write_bundle};

use crate::objects::{self, Input};
use crate::terminal::StopSignals;
use crate::{Outcome, terminal};

/// Show jobs and trials as web pages on this machine
///
/// The pages show the rewards of a job, the samples of each group, and the calls, branches and exact tokens of each
/// trial. The command reads and never writes, also beside a running job or proxy, whose pages follow it. Only programs of
/// this machine can open the pages.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Show these job directories, directories of jobs, data directories of proxies, .jsonl or .parquet files of rollouts,
    /// and captures of clusters in object storage (s3://BUCKET/PREFIX, file:///DIR).
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Serve on this port of 127.0.0.1, or on a free one for 0.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Show the texts of token ids with this tokenizer.json, or with that of this model directory. [default: token ids]
    #[arg(long, value_name = "PATH", env = "ROLLTAP_TOKENIZER")]
    tokenizer: Option<PathBuf>,
    /// Show the differences in this report of `rolltap check --recompute-report`. [default: recompute.jsonl in the directory
    /// of a job, if it exists]
    #[arg(long, value_name = "FILE")]
    recompute: Option<PathBuf>,
    /// Open the first page in the browser.
    #[arg(long)]
    open: bool,
    /// Print this trial as text with colours, instead of serving pages. The name of a trial may be shortened to its
    /// beginning.
    #[arg(long, value_name = "TRIAL", conflicts_with_all = ["port", "open", "bundle"])]
    text: Option<String>,
    /// Write all pages into this directory, which must be empty or absent, instead of serving them. Any file server can
    /// share it.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["port", "open"])]
    bundle: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  rolltap view jobs
  rolltap view jobs/NAME --tokenizer models/qwen3 --open
  rolltap view rollouts.parquet --port 7080
  rolltap view s3://captures/runs
  rolltap view jobs/NAME --bundle site
  rolltap view jobs/NAME --text hello-file__4iqbe99 | less -R

On a page, ? shows the keys.";

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let Arguments { paths, port, tokenizer, recompute, open, text, bundle } = arguments;
    let paths = match objects::all(paths).await? {
        Input::Local(paths) => paths,
        Input::Failed => return Ok(Outcome::Failed),
    };
    let mut signals = StopSignals::listen()?;
    let mut collection = Collection::open(&paths)?;
    if let Some(report) = &recompute {
        collection = collection.with_recompute(report)?;
    }
    let tokenizer = tokenizer.as_deref().map(read_tokenizer).transpose()?;
    if let Some(trial) = text {
        terminal::say(trial_text(&collection.trial(&trial)?, tokenizer.as_ref()).trim_end());
        return Ok(Outcome::Done);
    }
    if let Some(dir) = bundle {
        // The bar is drawn on a terminal only.
        let bar = ProgressBar::no_length().with_message("trials");
        let mut progress = |written: usize, all: usize| {
            bar.set_length(all as u64);
            bar.set_position(written as u64);
        };
        let bundled = write_bundle(&collection, tokenizer.as_ref(), &dir, &mut progress)?;
        bar.finish_and_clear();
        terminal::say(format!("{}: {} files, {} bytes", dir.display(), bundled.files, bundled.bytes));
        return Ok(Outcome::Done);
    }
    let server = Server::bind(collection, tokenizer, port).await?;
    let url = server.url();
    terminal::say(&url);
    terminal::note("ctrl-C ends the viewer");
    if open {
        open_browser(&url);
    }
    server.serve(signals.next()).await?;
    Ok(Outcome::Done)
}

/// Starts the user's browser. A failure is only a note, because the address is printed.
fn open_browser(url: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    if let Err(error) = std::process::Command::new(program).arg(url).spawn() {
        terminal::note(format!("cannot start {program}: {error}; open the address above in a browser"));
    }
}
