//! A traversal of minijinja's syntax tree. minijinja itself has none.

use minijinja::machinery::ast::{Call, CallArg, Expr, Spanned, Stmt};

/// Receives the nodes of a traversal. Parents come before their children.
pub(super) trait Visitor<'t> {
    fn statement(&mut self, _: &'t Stmt<'t>) {}
    /// Called after all nodes inside a statement.
    fn leave(&mut self, _: &'t Stmt<'t>) {}
    fn expression(&mut self, _: &'t Expr<'t>) {}
    /// Called for a call in an expression, or for the call of a `{% call %}` or `{% do %}`.
    fn call(&mut self, _: &'t Call<'t>) {}
}

/// Passes a statement and all nodes inside it to the visitor.
pub(super) fn walk<'t>(statement: &'t Stmt<'t>, visitor: &mut impl Visitor<'t>) {
    visitor.statement(statement);
    let expressions: Vec<&'t Expr<'t>> = match statement {
        Stmt::EmitExpr(emit) => vec![&emit.expr],
        Stmt::ForLoop(each) => {
            [Some(&each.target), Some(&each.iter), each.filter_expr.as_ref()].into_iter().flatten().collect()
        }
        Stmt::IfCond(cond) => vec![&cond.expr],
        Stmt::WithBlock(with) => {
            with.assignments.iter().flat_map(|(target, value)| [target, value]).collect()
        }
        Stmt::Set(set) => vec![&set.target, &set.expr],
        Stmt::SetBlock(set) => [Some(&set.target), set.filter.as_ref()].into_iter().flatten().collect(),
        Stmt::AutoEscape(escape) => vec![&escape.enabled],
        Stmt::FilterBlock(block) => vec![&block.filter],
        Stmt::Macro(declared) => declared.args.iter().chain(&declared.defaults).collect(),
        _ => Vec::new(),
    };
    expressions.into_iter().for_each(|expression| walk_expression(expression, visitor));
    if let Some(call) = called(statement) {
        walk_call(call, visitor);
    }
    bodies(statement).into_iter().flatten().for_each(|child| walk(child, visitor));
    visitor.leave(statement);
}

fn called<'t>(statement: &'t Stmt<'t>) -> Option<&'t Spanned<Call<'t>>> {
    match statement {
        Stmt::CallBlock(block) => Some(&block.call),
        Stmt::Do(done) => Some(&done.call),
        _ => None,
    }
}

/// Returns the statements inside a statement.
fn bodies<'t>(statement: &'t Stmt<'t>) -> [&'t [Stmt<'t>]; 2] {
    match statement {
        Stmt::Template(template) => [&template.children, &[]],
        Stmt::ForLoop(each) => [&each.body, &each.else_body],
        Stmt::IfCond(cond) => [&cond.true_body, &cond.false_body],
        Stmt::WithBlock(with) => [&with.body, &[]],
        Stmt::SetBlock(set) => [&set.body, &[]],
        Stmt::AutoEscape(escape) => [&escape.body, &[]],
        Stmt::FilterBlock(block) => [&block.body, &[]],
        Stmt::Macro(declared) => [&declared.body, &[]],
        Stmt::CallBlock(block) => [&block.macro_decl.body, &[]],
        _ => [&[], &[]],
    }
}

fn walk_call<'t>(call: &'t Call<'t>, visitor: &mut impl Visitor<'t>) {
    visitor.call(call);
    walk_expression(&call.expr, visitor);
    walk_arguments(&call.args, visitor);
}

fn walk_arguments<'t>(arguments: &'t [CallArg<'t>], visitor: &mut impl Visitor<'t>) {
    for argument in arguments {
        match argument {
            CallArg::Pos(value)
            | CallArg::Kwarg(_, value)
            | CallArg::PosSplat(value)
            | CallArg::KwargSplat(value) => walk_expression(value, visitor),
        }
    }
}

fn walk_expression<'t>(expression: &'t Expr<'t>, visitor: &mut impl Visitor<'t>) {
    visitor.expression(expression);
    let children: Vec<&'t Expr<'t>> = match expression {
        Expr::Var(_) | Expr::Const(_) => Vec::new(),
        Expr::Slice(slice) => {
            [Some(&slice.expr), slice.start.as_ref(), slice.stop.as_ref(), slice.step.as_ref()]
                .into_iter()
                .flatten()
                .collect()
        }
        Expr::UnaryOp(unary) => vec![&unary.expr],
        Expr::BinOp(binary) => vec![&binary.left, &binary.right],
        Expr::Compare(compare) => {
            std::iter::once(&compare.expr).chain(compare.ops.iter().map(|op| &op.expr)).collect()
        }
        Expr::IfExpr(cond) => [Some(&cond.test_expr), Some(&cond.true_expr), cond.false_expr.as_ref()]
            .into_iter()
            .flatten()
            .collect(),
        Expr::Filter(filter) => filter.expr.iter().collect(),
        Expr::Test(test) => vec![&test.expr],
        Expr::GetAttr(access) => vec![&access.expr],
        Expr::GetItem(access) => vec![&access.expr, &access.subscript_expr],
        // `walk_call` visits the children of a call below.
        Expr::Call(_) => Vec::new(),
        Expr::List(list) => list.items.iter().collect(),
        Expr::Tuple(tuple) => tuple.items.iter().collect(),
        Expr::Map(map) => map.keys.iter().chain(&map.values).collect(),
    };
    children.into_iter().for_each(|child| walk_expression(child, visitor));
    match expression {
        Expr::Call(call) => walk_call(call, visitor),
        Expr::Filter(filter) => walk_arguments(&filter.args, visitor),
        Expr::Test(test) => walk_arguments(&test.args, visitor),
        _ => {}
    }
}
