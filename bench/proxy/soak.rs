//! The soak: mixed loads through `rolltap proxy` at 60 % of one core for a long time, with bounds on the growth of
//! memory and on the drift of latency, and a check of all records at the end.

mod bounds;
mod mix;

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bounds::Sample;
use mix::Mix;

use crate::figures::quantile;
use crate::process::Process;
use crate::stage::Cores;
use crate::verdict;

/// The part of one core that the proxy uses.
const CORE: f64 = 0.6;
/// Paced streams per second at the beginning of the warm-up.
const FIRST_RATE: f64 = 30.0;
const PERIOD: Duration = Duration::from_secs(10);

/// The number of trials whose records are read at the end.
const READ_BACK: usize = 300;

/// Runs the soak with that program. Returns whether all bounds hold and all records are there.
pub(crate) async fn run(program: &Path, minutes: usize) -> bool {
    let cores = Cores::of_workers(1);
    cores.confine_load();
    let upstream = Process::start_on(&cores.load, &["upstream"]);
    let data = tempfile::tempdir().unwrap();
    let proxy = Process::start_program(&cores.measured, program, upstream.address, data.path());
    let mix = Mix::new(proxy.address, proxy.admin.unwrap());
    let (senders, mut agents) = mix.start();
    let rate = Mutex::new(FIRST_RATE);
    let (samples, errors) = tokio::select! {
        never = mix::announce(&rate, senders) => never,
        measured = measure(&mix, &proxy, &rate, minutes) => measured,
    };
    // The end of the announcements ends the agents, and they end their trials.
    while let Some(ended) = agents.join_next().await {
        ended.unwrap();
    }
    let mut is_good = bounds::judge(&samples);
    is_good &= judge_errors(errors);
    let read = mix.trials.read_back(READ_BACK).await;
    is_good &= judge_records(&mix, read);
    let stopped = proxy.stop();
    println!("{:6}  the proxy stopped", verdict(stopped));
    is_good & stopped & check(program, data.path(), mix.trials.ended(|ended| ended.trials()))
}

/// Finds the rate of calls, lets the load run at that rate, and prints a sample for each period. Returns the samples,
/// and the number of failed calls with the first error.
async fn measure(
    mix: &Mix,
    proxy: &Process,
    rate: &Mutex<f64>,
    minutes: usize,
) -> (Vec<Sample>, (usize, Option<String>)) {
    let whole = Duration::from_secs(60 * minutes as u64);
    let begin = Instant::now();
    find_rate(proxy, rate, (whole / 6).min(Duration::from_mins(2))).await;
    println!(
        "warmed up in {:.0} s; {:.0} paced streams a second",
        begin.elapsed().as_secs_f64(),
        *rate.lock().unwrap()
    );
    println!(
        "{:>7}  {:>8}  {:>5}  {:>7}  {:>7}  {:>7}  {:>7}  {:>9}  {:>7}  {:>9}",
        "seconds", "resident", "core", "ow p50", "ow p99", "p50", "p99", "answered", "trials", "recorded"
    );
    drop(std::mem::take(&mut *mix.window.lock().unwrap()));
    let (mut samples, mut errors, mut first_error) = (Vec::new(), 0, None);
    let (warm, mut seconds) = (Instant::now(), proxy.cpu_seconds());
    while begin.elapsed() < whole {
        let period = Instant::now();
        tokio::time::sleep(PERIOD).await;
        let mut window = std::mem::take(&mut *mix.window.lock().unwrap());
        let used = proxy.cpu_seconds() - seconds;
        seconds += used;
        let quantiles = |values: &mut [u64]| [0.5, 0.99].map(|of| quantile(values, of).unwrap_or(f64::NAN));
        let (trials, recorded) = mix.trials.ended(|ended| (ended.trials() as u64, ended.recorded));
        let sample = Sample {
            at: warm.elapsed().as_secs_f64(),
            resident_kib: proxy.resident_kib(),
            core: used / period.elapsed().as_secs_f64(),
            one_way: quantiles(&mut window.one_way),
            whole: quantiles(&mut window.whole),
            answered: mix.answered.load(Ordering::Relaxed),
            trials,
            recorded,
        };
        sample.print();
        samples.push(sample);
        errors += window.errors;
        first_error = first_error.or(window.first_error);
    }
    (samples, (errors, first_error))
}

/// Changes the rate each second until the proxy uses the wanted part of its core. Afterwards the rate is fixed, because
/// a rate that follows the processor time would hide that calls become slower.
async fn find_rate(proxy: &Process, rate: &Mutex<f64>, time: Duration) {
    let begin = Instant::now();
    let mut seconds = proxy.cpu_seconds();
    while begin.elapsed() < time {
        let second = Instant::now();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let used = proxy.cpu_seconds() - seconds;
        seconds += used;
        let core = used / second.elapsed().as_secs_f64();
        // A stream takes 1.5 seconds, so the effect of a change comes late.
        *rate.lock().unwrap() *= (CORE / core.max(0.01)).clamp(0.5, 2.0).powf(0.3);
    }
}

impl Sample {
    fn print(&self) {
        let Self { at, resident_kib, core, one_way, whole, answered, trials, recorded } = self;
        println!(
            "{at:7.0}  {:5.1} MB  {:3.0} %  {:7.0}  {:7.0}  {:7.0}  {:7.0}  {answered:9}  {trials:7}  {recorded:9}",
            resident_kib / 1e3,
            core * 100.0,
            one_way[0],
            one_way[1],
            whole[0],
            whole[1],
        );
    }
}

fn judge_errors((errors, first_error): (usize, Option<String>)) -> bool {
    println!("{:6}  failed calls: {errors} {}", verdict(errors == 0), first_error.unwrap_or_default());
    errors == 0
}

fn judge_records(mix: &Mix, read: usize) -> bool {
    let (answered, aborted) = (mix.answered.load(Ordering::Relaxed), mix.aborted.load(Ordering::Relaxed));
    mix.trials.ended(|ended| {
        let holds = ended.missing == 0 && ended.answered == answered && ended.recorded >= answered;
        println!(
            "{:6}  records: {answered} answers and {aborted} aborted calls, {} records in {} trials, {} of them read from \
             the store; {} answers without a record {}",
            verdict(holds),
            ended.recorded,
            ended.trials(),
            read,
            ended.missing,
            ended.first_missing.as_deref().unwrap_or_default(),
        );
        holds
    })
}

/// Runs `rolltap check` on the captures. Returns whether it finds no breach, and at least one row per trial.
fn check(program: &Path, data: &Path, trials: usize) -> bool {
    let checked = Command::new(program).arg("check").arg(data).output().unwrap();
    let (breaches, note) =
        (String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
    let rows = note.lines().find_map(|line| line.split_once(" rows checked")?.0.parse::<usize>().ok());
    let holds = checked.status.success() && rows.is_some_and(|rows| rows >= trials);
    println!("{:6}  check: {}", verdict(holds), note.trim());
    breaches.lines().take(20).for_each(|breach| println!("        {breach}"));
    holds
}
