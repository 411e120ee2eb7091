//! A route together with its operation in the OpenAPI document, so that none exists without the other.
//!
//! The operation follows from the handler's own signature: each extractor describes a part of the request
//! ([`Argument`]), and the type that the handler returns describes the answer ([`Answer`]).

use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::handler::Handler;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use axum::{Extension, Json, Router, middleware};
use schemars::JsonSchema;
use serde::Serialize;

use super::AdminPlane;
use super::audit::Subject;
use super::error::AdminError;
use super::guard::{GuardedRoute, guard};
use super::openapi::Operation;
use super::role::AdminRole;
use crate::api::ErrorBody;

/// A route of the admin plane and its operation. `D` is [`Described`] for the OpenAPI document, and `()` for the router,
/// so that a program without the document contains no descriptions.
#[derive(Debug)]
pub(super) struct Endpoint<D> {
    /// The name of the method, such as `GET`.
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// The `operationId`: clients that are generated name their function so.
    pub(super) name: &'static str,
    /// The first line is the summary, the rest the description.
    pub(super) text: &'static str,
    pub(super) access: Access,
    /// Whether the audit log has a record of each request.
    is_recorded: bool,
    pub(super) description: D,
    route: MethodRouter<Arc<AdminPlane>>,
}

/// What an endpoint knows of the request and the answers of its handler.
pub(super) trait Description {
    fn of<A, H: Signature<A>>() -> Self;
}

impl Description for () {
    fn of<A, H: Signature<A>>() -> Self {}
}

/// Adds the request and the answers of the handler to its operation.
#[derive(Debug)]
pub(super) struct Described(pub(super) fn(&mut Operation<'_>));

impl Description for Described {
    fn of<A, H: Signature<A>>() -> Self {
        Self(H::describe)
    }
}

/// The clients that may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Every client, without a token.
    Everyone,
    /// The clients whose token has this role.
    Role(AdminRole),
    /// The clients whose token has this role, and those with the key of the trial that the path names.
    RoleOrKey(AdminRole),
}

impl<D> Endpoint<D> {
    /// Makes the audit log record each request, as it does for each request that changes something.
    pub(super) fn recorded(self) -> Self {
        Self { is_recorded: true, ..self }
    }

    /// Whether the audit log has a record of each request.
    #[cfg(test)]
    pub(super) fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    /// Adds the route to a router, behind the guard of its role.
    pub(super) fn add_to(
        self,
        router: Router<Arc<AdminPlane>>,
        plane: &Arc<AdminPlane>,
    ) -> Router<Arc<AdminPlane>> {
        let Self { method, path, access, is_recorded, route, .. } = self;
        let (role, admits_key) = match access {
            Access::Everyone => return router.route(path, route),
            Access::Role(role) => (role, false),
            Access::RoleOrKey(role) => (role, true),
        };
        let plane = Arc::clone(plane);
        let guarded = GuardedRoute { plane, role, admits_key, method, path, is_recorded, is_page: false };
        router.route(path, route.route_layer(middleware::from_fn_with_state(guarded, guard)))
    }
}

macro_rules! methods {
    ($($function:ident, $filter:ident);*) => {$(
        /// The endpoint of this method at `path`.
        pub(super) fn $function<D, H, T, A>(
            access: Access,
            path: &'static str,
            name: &'static str,
            text: &'static str,
            handler: H,
        ) -> Endpoint<D>
        where
            D: Description,
            H: Handler<T, Arc<AdminPlane>> + Signature<A>,
            T: 'static,
        {
            let route = on(MethodFilter::$filter, handler);
            let method = stringify!($filter);
            // Requests that only read are not recorded, except those of `recorded`.
            let is_recorded = !["GET", "HEAD"].contains(&method);
            Endpoint { method, path, name, text, access, is_recorded, description: D::of::<A, H>(), route }
        }
    )*};
}
methods!(delete, DELETE; get, GET; head, HEAD; post, POST; put, PUT);

/// A handler whose arguments `A` and answer can be described.
pub(super) trait Signature<A> {
    fn describe(operation: &mut Operation<'_>);
}

macro_rules! signature {
    ($($argument:ident),*) => {
        impl<F, R, $($argument),*> Signature<($($argument,)*)> for F
        where
            F: Fn($($argument),*) -> R,
            R: Future<Output: Answer>,
            $($argument: Argument,)*
        {
            fn describe(operation: &mut Operation<'_>) {
                $($argument::describe(operation);)*
                R::Output::describe(operation);
            }
        }
    };
}
signature!();
signature!(A);
signature!(A, B);
signature!(A, B, C);

/// An extractor: a part of the request.
pub(super) trait Argument {
    fn describe(operation: &mut Operation<'_>);
}

impl<T> Argument for State<T> {
    fn describe(_: &mut Operation<'_>) {}
}

impl<T: JsonSchema> Argument for Result<Path<T>, PathRejection> {
    fn describe(operation: &mut Operation<'_>) {
        operation.path_parameter::<T>();
    }
}

impl<T: JsonSchema> Argument for Result<Query<T>, QueryRejection> {
    fn describe(operation: &mut Operation<'_>) {
        operation.query::<T>();
    }
}

impl<T: JsonSchema> Argument for Result<Json<T>, JsonRejection> {
    fn describe(operation: &mut Operation<'_>) {
        operation.body::<T>(true);
    }
}

impl<T: JsonSchema> Argument for Result<Option<Json<T>>, JsonRejection> {
    fn describe(operation: &mut Operation<'_>) {
        operation.body::<T>(false);
    }
}

/// A type that a handler returns: one or several answers.
pub(super) trait Answer {
    fn describe(operation: &mut Operation<'_>);
}

impl<T: Answer, E: Answer> Answer for Result<T, E> {
    fn describe(operation: &mut Operation<'_>) {
        T::describe(operation);
        E::describe(operation);
    }
}

impl<T: JsonSchema> Answer for Json<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.answer::<T>("200", "Success.", "application/json");
    }
}

impl Answer for &'static str {
    fn describe(operation: &mut Operation<'_>) {
        operation.answer::<str>("200", "Success.", "text/plain; charset=utf-8");
    }
}

impl Answer for AdminError {
    fn describe(operation: &mut Operation<'_>) {
        // The statuses of an error depend on the state of the proxy. Its `type` and `code` name the kind.
        operation.answer::<ErrorBody>(
            "default",
            "An error. A 503 has a `Retry-After` header.",
            "application/json",
        );
    }
}

/// The answer 200 without a body.
pub(super) struct NoBody;

impl IntoResponse for NoBody {
    fn into_response(self) -> Response {
        StatusCode::OK.into_response()
    }
}

impl Answer for NoBody {
    fn describe(operation: &mut Operation<'_>) {
        operation.empty_answer("200", "Success.");
    }
}

/// The answer 201 with a JSON body.
pub(super) struct Created<T> {
    pub(super) body: T,
    /// The new object, for the audit log: the path of the request does not name it.
    pub(super) subject: Subject,
}

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        (StatusCode::CREATED, Extension(self.subject), Json(self.body)).into_response()
    }
}

impl<T: JsonSchema> Answer for Created<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.answer::<T>("201", "Created.", "application/json");
    }
}
