//! The cost of the proxy beside that of a hyper pass-through, or of nginx, which capture nothing. `just bench gate` runs
//! it, and docs/explanation/performance.md explains the figures.
//!
//! The first argument is the measurement. The measured processes are this program in another role.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a benchmark that fails panics, and prints its figures"
)]

mod answer;
mod client;
mod clock;
mod figures;
mod gate;
mod guard;
mod load;
mod loads;
mod nginx;
mod options;
mod pass_through;
#[path = "../process.rs"]
mod process;
mod reading;
mod request;
mod scaling;
mod soak;
mod stage;
mod trials;
mod upstream;

use std::path::Path;
use std::process::ExitCode;

use options::Options;
use process::runtime;

const USAGE: &str = "usage: gate [--rounds N] [--workers N]
       gate --guard [--update]
       gate --tls [--rounds N]
       scaling [--seconds N] [--trials N]
       soak --rolltap PROGRAM [--minutes N]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["upstream"] => runtime("1").block_on(upstream::run(None)),
        ["upstream", certificate, key] => {
            runtime("1").block_on(upstream::run(Some(nginx::acceptor(certificate, key))))
        }
        ["pass-through", upstream, workers] => {
            runtime(workers).block_on(pass_through::run(upstream.parse().unwrap()))
        }
        ["proxy", upstream, data, workers] => process::run_proxy(upstream, data, workers, None),
        ["proxy", upstream, data, workers, authority] => {
            process::run_proxy(upstream, data, workers, Some(authority))
        }
        [measurement, ref options @ ..] => match measure(measurement, options) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(problem) => {
                println!("{problem}\n{USAGE}");
                ExitCode::from(2)
            }
        },
        [] => {
            println!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Runs a measurement. Returns whether its verdict is good. Fails if the command line is wrong.
fn measure(measurement: &str, options: &[&str]) -> Result<bool, String> {
    let runtime = runtime("1");
    match measurement {
        "gate" if options.first() == Some(&"--guard") => match options {
            ["--guard"] => runtime.block_on(guard::run()),
            ["--guard", "--update"] => runtime.block_on(guard::update()),
            _ => Err("--guard has no other option than --update".to_owned()),
        },
        "gate" if options.first() == Some(&"--tls") => {
            let options = Options::parse(&options[1..], &["--rounds"])?;
            Ok(runtime.block_on(gate::run_beside_nginx(options.number("--rounds", 5)?)))
        }
        "gate" => {
            let options = Options::parse(options, &["--rounds", "--workers"])?;
            let (rounds, workers) = (options.number("--rounds", 5)?, options.number("--workers", 1)?);
            Ok(runtime.block_on(gate::run(rounds, workers)))
        }
        "scaling" => {
            let options = Options::parse(options, &["--seconds", "--trials"])?;
            let (seconds, trials) = (options.number("--seconds", 10)?, options.number("--trials", 1000)?);
            runtime.block_on(scaling::run(seconds, trials));
            Ok(true)
        }
        "soak" => {
            let options = Options::parse(options, &["--rolltap", "--minutes"])?;
            let program = options.text("--rolltap").ok_or("--rolltap PROGRAM is missing")?;
            Ok(runtime.block_on(soak::run(Path::new(program), options.number("--minutes", 30)?)))
        }
        _ => Err(format!("unknown measurement: {measurement}")),
    }
}

fn verdict(holds: bool) -> &'static str {
    if holds { "ok" } else { "FAILED" }
}
