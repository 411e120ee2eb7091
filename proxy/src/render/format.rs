//! Detects the form of content that a template reads. vLLM looks for a loop over a message's content
//! (`renderers/hf.py`, `_iter_nodes_assign_content_item`). This module does the same on minijinja's syntax tree.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::Error;
use minijinja::machinery::ast::{Call, CallArg, Expr, ForLoop, Macro, Stmt};
use minijinja::machinery::parse;
use minijinja::syntax::SyntaxConfig;

use super::ContentFormat;
use super::syntax_tree::{Visitor, walk};

/// Returns the form that vLLM detects for this template.
pub(super) fn detect(source: &str, syntax: SyntaxConfig) -> Result<ContentFormat, Error> {
    let root = parse(source, "chat", syntax)?;
    let mut found = FormatEvidence::default();
    walk(&root, &mut found);
    Ok(if found.loops_over_content() { ContentFormat::OpenAi } else { ContentFormat::String })
}

/// The parts of a template that determine the form.
#[derive(Default)]
struct FormatEvidence<'t> {
    /// `{% set NAME = EXPRESSION %}`
    assignments: Vec<(&'t str, &'t Expr<'t>)>,
    loops: Vec<Loop<'t>>,
    macros: BTreeMap<&'t str, Vec<&'t str>>,
    calls: Vec<(&'t str, &'t [CallArg<'t>])>,
    /// The macros around the current node, the innermost last.
    inside: Vec<&'t str>,
}

/// `{% for TARGET in ITER %}`
struct Loop<'t> {
    target: Option<&'t str>,
    iter: &'t Expr<'t>,
    /// The macro that contains the loop.
    inside: Option<&'t str>,
}

impl<'t> Visitor<'t> for FormatEvidence<'t> {
    fn statement(&mut self, statement: &'t Stmt<'t>) {
        match statement {
            Stmt::Set(set) => self.assignments.extend(name(&set.target).map(|name| (name, &set.expr))),
            Stmt::ForLoop(each) => self.add_loop(each),
            Stmt::Macro(declared) => self.enter(declared),
            _ => {}
        }
    }

    fn leave(&mut self, statement: &'t Stmt<'t>) {
        if matches!(statement, Stmt::Macro(_)) {
            self.inside.pop();
        }
    }

    fn call(&mut self, call: &'t Call<'t>) {
        self.calls.extend(name(&call.expr).map(|name| (name, call.args.as_slice())));
    }
}

impl<'t> FormatEvidence<'t> {
    fn add_loop(&mut self, each: &'t ForLoop<'t>) {
        let inside = self.inside.last().copied();
        self.loops.push(Loop { target: name(&each.target), iter: &each.iter, inside });
    }

    fn enter(&mut self, declared: &'t Macro<'t>) {
        self.macros.insert(declared.name, declared.args.iter().filter_map(name).collect());
        self.inside.push(declared.name);
    }

    fn loops_over_content(&self) -> bool {
        let messages = self.message_names();
        let is_content = |expression: &Expr<'_>| {
            messages.iter().any(|message| is_variable_or_part(expression, message, Some("content")))
        };
        self.loops.iter().any(|each| {
            is_content(each.iter)
                || match (name(each.iter), each.inside) {
                    (Some(iterated), Some(of)) => self.content_parameters(of, &is_content).contains(iterated),
                    (Some(iterated), None) => iterated == "content",
                    (None, _) => false,
                }
        })
    }

    /// Returns the variables of loops over the messages.
    fn message_names(&self) -> BTreeSet<&'t str> {
        let lists = self.names_of("messages");
        let is_list = |each: &&Loop<'t>| lists.iter().any(|list| is_variable_or_part(each.iter, list, None));
        self.loops.iter().filter(is_list).filter_map(|each| each.target).collect()
    }

    /// Returns a variable's own name, and the names to which the variable or its parts are assigned.
    fn names_of(&self, variable: &'t str) -> BTreeSet<&'t str> {
        let mut names = BTreeSet::from([variable]);
        // An assigned name may itself be assigned to another name, so repeat until no name is added.
        loop {
            let further: Vec<&'t str> = self
                .assignments
                .iter()
                .filter(|(_, value)| names.iter().any(|known| is_variable_or_part(value, known, None)))
                .map(|(assigned, _)| *assigned)
                .collect();
            let known = names.len();
            names.extend(further);
            if names.len() == known {
                return names;
            }
        }
    }

    /// Returns the parameters of a macro that get a message's content from some call.
    fn content_parameters(&self, of: &str, is_content: &impl Fn(&Expr<'_>) -> bool) -> BTreeSet<&'t str> {
        let parameters = self.macros.get(of).map(Vec::as_slice).unwrap_or_default();
        let mut handed = BTreeSet::new();
        for (_, arguments) in self.calls.iter().filter(|(called, _)| *called == of) {
            let mut places = parameters.iter();
            for argument in *arguments {
                match argument {
                    CallArg::Pos(value) => {
                        // Each positional argument takes a parameter, also one without content.
                        handed.extend(places.next().filter(|_| is_content(value)));
                    }
                    CallArg::Kwarg(named, value) if is_content(value) => {
                        handed.extend(parameters.iter().find(|parameter| *parameter == named));
                    }
                    _ => {}
                }
            }
        }
        handed
    }
}

fn name<'t>(expression: &Expr<'t>) -> Option<&'t str> {
    match expression {
        Expr::Var(variable) => Some(variable.id),
        _ => None,
    }
}

/// Returns whether the expression is the variable, or its `member` if given, possibly behind filters, tests and slices.
fn is_variable_or_part(expression: &Expr<'_>, variable: &str, member: Option<&str>) -> bool {
    match (expression, member) {
        (Expr::Filter(filter), _) => {
            filter.expr.as_ref().is_some_and(|inner| is_variable_or_part(inner, variable, member))
        }
        (Expr::Test(test), _) => is_variable_or_part(&test.expr, variable, member),
        (Expr::Slice(slice), _) => is_variable_or_part(&slice.expr, variable, member),
        (Expr::Var(found), None) => found.id == variable,
        (Expr::GetAttr(access), Some(member)) => {
            access.name == member && name(&access.expr) == Some(variable)
        }
        (Expr::GetItem(access), Some(member)) => {
            name(&access.expr) == Some(variable)
                && matches!(&access.subscript_expr, Expr::Const(key) if key.value.as_str() == Some(member))
        }
        _ => false,
    }
}
