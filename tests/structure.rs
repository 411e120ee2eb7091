//! The structure of the repository: the layers of the code, and pages that are generated from it.

#[cfg(test)]
mod structure {
    mod deploy;
    mod examples;
    mod layers;
}
