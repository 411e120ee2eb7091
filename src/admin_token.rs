//! `rolltap admin-token`

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use jiff::{SignedDuration, Timestamp};
use rolltap_proxy::{AdminRole, NewAdminToken, TokenName};

use crate::{Outcome, terminal};

/// Make a token for the admin plane, with roles
///
/// The token is printed once, to standard output. Its entry, with a hash in place of the token, goes into the file of
/// `rolltap proxy --admin-tokens`. A running proxy reads the file again.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Name the token, for errors and for the audit log: up to 64 letters, digits, '.', '_' and '-'.
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: TokenName,
    /// Permit the requests of this role. Repeat the flag for several roles.
    ///
    /// `open` opens trials and closes groups. `reward` seals trials and sets their rewards. `read` permits every GET:
    /// trials, calls, rollouts, groups, upstreams and policy versions. `operate` changes upstreams and policy versions,
    /// pauses and resumes.
    #[arg(long, value_name = "ROLE", required = true, value_parser = PossibleValuesParser::new(AdminRole::NAMES))]
    role: Vec<String>,
    /// Let the token expire at this time (2027-01-31T00:00:00Z), or after this many days (90d). [default: never]
    #[arg(long, value_name = "TIME", value_parser = expiry)]
    expires: Option<Timestamp>,
    /// Append the entry to this file, which is made if there is none. [default: print the entry to standard error]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  rolltap admin-token --name ci --role open --role reward --file tokens.toml > ci.token
  rolltap admin-token --name trainer --role read --role operate --expires 90d
  rolltap proxy --upstream http://127.0.0.1:8000 --admin-tokens tokens.toml

To revoke a token, remove its entry from the file.";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let roles = arguments.role.iter().filter_map(|role| AdminRole::named(role)).collect();
    let token = NewAdminToken::generate(&arguments.name, &roles, arguments.expires)?;
    match &arguments.file {
        Some(file) => token.append_to(file)?,
        None => terminal::note(token.entry().trim_end()),
    }
    terminal::say(token.reveal());
    Ok(Outcome::Done)
}

fn name(text: &str) -> Result<TokenName, String> {
    TokenName::new(text).map_err(|error| error.to_string())
}

/// Parses a time in the future, or a number of days.
fn expiry(text: &str) -> Result<Timestamp, String> {
    let now = Timestamp::now();
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    let time = match days {
        Some(days) => now.checked_add(SignedDuration::from_hours(24 * i64::from(days))),
        None => text.parse(),
    };
    let time = time.map_err(|_| "write it like 2027-01-31T00:00:00Z or 90d".to_owned())?;
    if time <= now {
        return Err("the time has passed".to_owned());
    }
    // A file is for readers, who need no fractions of a second.
    Timestamp::from_second(time.as_second()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_expires_at_a_time_or_after_days() {
        assert_eq!(expiry("2999-01-31T00:00:00+01:00").unwrap().to_string(), "2999-01-30T23:00:00Z");
        let days = expiry("90d").unwrap().duration_since(Timestamp::now()).as_hours();
        assert!((24 * 90 - 1..=24 * 90).contains(&days), "{days}");
        for wrong in ["", "soon", "90", "-1d", "2999-01-31", "4294967295d"] {
            assert!(expiry(wrong).unwrap_err().contains("90d"), "{wrong}");
        }
        for passed in ["0d", "2020-01-01T00:00:00Z"] {
            assert_eq!(expiry(passed).unwrap_err(), "the time has passed");
        }
    }
}
