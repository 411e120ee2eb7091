//! Copies files into and out of environments: archives, unpacking, and the mapping of paths.

pub(super) mod archive;
pub(super) mod fetch;
pub(super) mod path_map;
pub(super) mod unpack;
