//! Captures that were damaged or cut: the intact records are returned, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::harness::{Stage, Trial};
use super::proxy::Launch;
use super::rng::Chance;

/// Writes sealed and open trials of several calls each, and stops the proxy.
async fn written(dir: &Path) -> (Stage, Vec<Trial>) {
    let mut stage = Stage::set(dir, |_| {}).await;
    let mut trials = Vec::new();
    for number in 0..8 {
        let trial = stage.open().await.unwrap();
        for _ in 0..4 {
            stage.call(&trial, 30).await.unwrap();
        }
        if number < 5 {
            stage.seal(&trial).await.unwrap();
            stage.reward(&trial, f64::from(number)).await.unwrap();
        }
        trials.push(trial);
    }
    stage.proxy.kill().await;
    (stage, trials)
}

/// Returns the number of repetitions. Each starts the program once or twice: ten, unless the variable has another
/// number.
fn times(variable: &str) -> u32 {
    std::env::var(variable).map_or(10, |text| text.parse().unwrap())
}

/// Returns the trials that the breaches name.
fn named(breaches: &[String]) -> BTreeSet<&str> {
    breaches.iter().filter_map(|breach| breach.split(':').next()).collect()
}

#[tokio::test]
async fn a_damaged_byte_is_named_and_costs_its_own_record() {
    let dir = tempfile::tempdir().unwrap();
    let (mut stage, _) = written(dir.path()).await;
    let sound = stage.launch.files().into_iter().map(|path| (fs::read(&path).unwrap(), path));
    let (sound, file) = sound.max_by_key(|(bytes, _)| bytes.len()).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap().to_owned();
    let mut chance = Chance::of(3, 0);
    for _ in 0..times("CRASH_FLIPS") {
        let at = chance.among(64..sound.len() as u64) as usize;
        let mut damaged = sound.clone();
        damaged[at] ^= 1 << chance.among(0..8);
        fs::write(&file, &damaged).unwrap();

        let (code, said) = stage.launch.check();
        assert_eq!(code, Some(1), "byte {at} of {name}: {said}");
        let byte =
            damaged_byte(&said, &name).unwrap_or_else(|| panic!("byte {at} of {name} is not named: {said}"));
        assert!(byte <= at, "byte {at} is damaged, {byte} is named: {said}");

        fs::remove_file(&stage.launch.log).unwrap();
        stage.proxy = stage.launch.start().await;
        assert!(stage.launch.log_text().contains(&name), "the damage is not reported");
        let breaches = stage.breaches().await;
        assert!(named(&breaches).len() <= 1, "byte {at} is damaged, of {}: {breaches:?}", sound.len());
        stage.proxy.kill().await;
        forget_what_was_seen(&stage);
        restore(&stage.launch, &file, &sound);
    }
    stage.proxy = stage.launch.start().await;
    assert_eq!(stage.breaches().await, [""; 0]);
}

/// Returns the byte in the first line that names the file: `… capture-00000001.rolltap … byte 123 …`.
fn damaged_byte(said: &str, name: &str) -> Option<usize> {
    let line = said.lines().find(|line| line.contains(name))?;
    let (_, number) = line.split_once("byte ")?;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Forgets the responses from damaged captures, because later responses may differ.
fn forget_what_was_seen(stage: &Stage) {
    for book in stage.world.books() {
        let mut page = book.page();
        (page.calls, page.rollout, page.is_settled) = (None, None, false);
    }
}

/// Restores the captures, without the files that proxies have written since.
fn restore(launch: &Launch, file: &Path, sound: &[u8]) {
    for other in launch.files().iter().filter(|other| *other > &file.to_owned()) {
        fs::remove_file(other).unwrap();
    }
    fs::write(file, sound).unwrap();
}

#[tokio::test]
async fn a_torn_end_is_cut_and_everything_before_it_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut stage = Stage::set(dir.path(), |_| {}).await;
    let trial = stage.open().await.unwrap();
    for _ in 0..3 {
        stage.call(&trial, 30).await.unwrap();
    }
    let before = trial.book.page().seen.clone();
    let file = stage.launch.files().pop().unwrap();
    let from = fs::metadata(&file).unwrap().len();
    stage.call(&trial, 30).await.unwrap();
    stage.proxy.kill().await;
    let sound = fs::read(&file).unwrap();
    let last = from as usize..sound.len();
    assert!(last.len() > 100, "the last call is {last:?} of {}", file.display());

    let mut chance = Chance::of(5, 0);
    for _ in 0..times("CRASH_CUTS") {
        let cut = chance.among(last.start as u64..last.end as u64) as usize;
        fs::write(&file, &sound[..cut]).unwrap();
        trial.book.page().seen = before.clone();
        stage.proxy = stage.launch.start().await;
        stage.call(&trial, 10).await.unwrap();
        stage.kill_and_start().await;
        stage.world.upstream.uncount(trial.book.page().number);
        assert_eq!(stage.breaches().await, [""; 0], "cut at {cut} of {last:?}");
        let (code, said) = stage.launch.check();
        assert_eq!(code, Some(0), "cut at {cut} of {last:?}: {said}");
        stage.proxy.kill().await;
        restore(&stage.launch, &file, &sound);
    }
}
