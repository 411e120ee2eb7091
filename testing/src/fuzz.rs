//! Fuzz targets. As a test, a target checks its committed corpus and some random inputs. `scripts/fuzz` builds the same
//! target with libFuzzer, which searches for inputs that reach new code.

use std::panic::RefUnwindSafe;

pub use bolero::TargetLocation;

/// The longest random input of a test, in bytes. libFuzzer has a limit of its own.
const LONGEST: usize = 512;

/// Checks inputs of the target `name`: `fuzz!("sse", |bytes| …)` in a test named `fuzz_sse`. The check panics if the
/// decoder is wrong. The corpus is in `__fuzz__/NAME/corpus` of the crate.
#[macro_export]
macro_rules! fuzz {
    ($name:literal, $check:expr) => {
        $crate::fuzz::run(
            $crate::fuzz::TargetLocation {
                package_name: env!("CARGO_PKG_NAME"),
                manifest_dir: env!("CARGO_MANIFEST_DIR"),
                module_path: module_path!(),
                // The directory of this file is that of the corpora.
                file: concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
                line: line!(),
                // The last segment is the mark that bolero expects behind the name of the test.
                item_path: concat!(module_path!(), "::fuzz_", $name, "::__bolero_item_path__"),
                test_name: Some($name.to_owned()),
            },
            $check,
        )
    };
}

/// Checks the corpus at `location` and random inputs, or hands over to libFuzzer in its build. [`fuzz!`] calls this.
pub fn run(location: TargetLocation, check: impl Fn(&[u8]) + RefUnwindSafe) {
    bolero::test(location)
        .with_iterations(crate::sample(200, 20_000))
        .with_max_len(LONGEST)
        .for_each(|input: &[u8]| check(input));
}

/// Returns the pieces of a stream that arrives byte by byte, and those of a stream that is cut at places that depend on
/// its bytes. The second one has an empty piece.
#[must_use]
pub fn cuts(stream: &[u8]) -> [Vec<&[u8]>; 2] {
    let mut irregular = vec![&[][..]];
    let (mut rest, mut seed) = (stream, stream.len());
    while let Some(&byte) = rest.first() {
        seed = seed.wrapping_mul(31).wrapping_add(usize::from(byte));
        let (piece, after) = rest.split_at(rest.len().min(1 + seed % 13));
        irregular.push(piece);
        rest = after;
    }
    [stream.chunks(1).collect(), irregular]
}
