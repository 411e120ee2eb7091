//! The structure of the code: the modules of each crate form layers, and `layers.toml` lists them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// The largest number of top-level modules of a crate.
const MOST_MODULES: usize = 18;

/// Returns the crates of `layers.toml`, each with its modules from top to bottom.
fn layers() -> BTreeMap<String, Vec<String>> {
    toml::from_str(include_str!("../../layers.toml")).unwrap()
}

#[test]
fn a_module_imports_only_modules_below_it() {
    let mut wrong = Vec::new();
    for (crate_name, order) in layers() {
        let level = |module: &str| order.iter().position(|name| name == module);
        for Import { file, from, to } in imports(&source_of(&crate_name)) {
            // A path may name an item of the crate's root. It is a module only if the list has it.
            let (Some(above), Some(below)) = (level(&from), level(&to)) else { continue };
            if above > below {
                wrong.push(format!("{file}: {from} imports {to}, which layers.toml lists above it"));
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_top_level_module_has_its_line_and_no_crate_has_too_many() {
    for (crate_name, order) in layers() {
        let listed: BTreeSet<_> = order.iter().cloned().collect();
        let present: BTreeSet<_> = rust_files(&source_of(&crate_name))
            .iter()
            .filter_map(|file| module_of(&source_of(&crate_name), file).first().cloned())
            .filter(|module| module != "tests")
            .collect();
        assert_eq!(present, listed, "layers.toml and {crate_name}/src differ");
        assert_eq!(order.len(), listed.len(), "layers.toml lists a module of {crate_name} twice");
        assert!(order.len() <= MOST_MODULES, "{crate_name} has {} modules at its top level", order.len());
    }
}

#[test]
fn imports_are_found_in_every_form() {
    let source = "
        use crate::{a::X, b::{self, Y}};
        pub(crate) use super::c::Z;
        fn f() -> crate::d::T { super::super::e::g(); tracing::info!(n = crate::f::N); }
        mod inner { use super::super::h::I; }
        #[cfg(test)]
        mod tests { use crate::unseen::J; }
    ";
    let found = targets(&syn::parse_file(source).unwrap(), &["room".to_owned(), "part".to_owned()]);
    let expected = ["a", "b", "c", "d", "e", "f", "h"];
    // `super` of `room::part` is `room`, so `super::c` is inside the same top-level module.
    let expected: BTreeSet<_> =
        expected.into_iter().map(|name| if matches!(name, "c" | "h") { "room" } else { name }).collect();
    assert_eq!(found.iter().map(String::as_str).collect::<BTreeSet<_>>(), expected);
}

/// `from` names `to` in `file`. Both are top-level modules of one crate.
struct Import {
    file: String,
    from: String,
    to: String,
}

fn source_of(crate_name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(crate_name).join("src")
}

/// Returns the imports between different top-level modules, outside tests.
fn imports(source: &Path) -> Vec<Import> {
    let mut all = Vec::new();
    for file in rust_files(source) {
        let module = module_of(source, &file);
        let Some(from) = module.first() else { continue };
        if module.iter().any(|name| name == "tests") {
            continue;
        }
        let parsed = syn::parse_file(&fs::read_to_string(&file).unwrap()).unwrap();
        let others = targets(&parsed, &module).into_iter().filter(|to| to != from);
        let name = file.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().display().to_string();
        all.extend(others.map(|to| Import { file: name.clone(), from: from.clone(), to }));
    }
    assert!(!all.is_empty(), "no imports below {}", source.display());
    all
}

pub(super) fn rust_files(source: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![source.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Returns the path of a file's module: `src/store/read.rs` is `[store, read]`, `src/lib.rs` is empty.
fn module_of(source: &Path, file: &Path) -> Vec<String> {
    let path = file.strip_prefix(source).unwrap().with_extension("");
    let names: Vec<_> = path.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
    if names == ["lib"] { Vec::new() } else { names }
}

/// Returns the top-level modules that a file of `module` names, its own included.
fn targets(file: &syn::File, module: &[String]) -> BTreeSet<String> {
    let mut paths = Paths { module: module.to_owned(), found: BTreeSet::new() };
    paths.visit_file(file);
    paths.found
}

struct Paths {
    /// The module of the items that are visited.
    module: Vec<String>,
    found: BTreeSet<String>,
}

impl Paths {
    /// Adds the top-level module of a path, if the path begins with `crate`, `self` or `super`.
    fn add(&mut self, segments: &[String]) {
        let mut absolute = match segments.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => self.module.clone(),
            _ => return,
        };
        for segment in segments {
            match segment.as_str() {
                "crate" | "self" => {}
                "super" => {
                    absolute.pop();
                }
                name => absolute.push(name.to_owned()),
            }
        }
        self.found.extend(absolute.into_iter().next());
    }

    fn add_tree(&mut self, tree: &syn::UseTree, before: &[String]) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.add_tree(&path.tree, &with(&path.ident)),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(tree, before)),
            syn::UseTree::Name(name) => self.add(&with(&name.ident)),
            syn::UseTree::Rename(rename) => self.add(&with(&rename.ident)),
            syn::UseTree::Glob(_) => self.add(before),
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree(&item.tree, &[]);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.ident == "tests" {
            return;
        }
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.add(&segments);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        // The arguments of a macro are not a syntax tree. Paths from `crate` are found in their text.
        let text = called.tokens.to_string();
        for rest in text.split("crate :: ").skip(1) {
            let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            self.add(&["crate".to_owned(), name.to_owned()]);
        }
        visit::visit_macro(self, called);
    }
}
