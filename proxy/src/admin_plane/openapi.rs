//! The OpenAPI document of the admin plane, from its endpoints and from the types of their handlers.

use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::endpoint::{Access, Described, Endpoint};
use super::routes;

const INTRODUCTION: &str = "The plane of `rolltap proxy` for runners and trainers. Agents must not reach it. \
                            Request bodies are JSON, and unknown fields in them are errors.";

const TOKEN: &str = "The token of `--admin-token-file`, which has all roles, or one of `--admin-tokens` with the role \
                     that the operation lists.";

const TRIAL_KEY: &str = "The key of the trial that the path names.";

/// The place of the schemas of types in the document, as a JSON pointer.
const SCHEMAS: &str = "/components/schemas";

/// Returns the OpenAPI 3.1 document of the admin plane.
pub fn openapi() -> Value {
    let mut schemas = Schemas::new();
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in routes::all() {
        let mut operation = operation(&endpoint, &mut schemas);
        insert(&mut operation, "security", security(endpoint.access));
        let methods = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        insert(methods, &endpoint.method.to_lowercase(), operation);
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "rolltap admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": INTRODUCTION,
            "license": {"name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE")},
        },
        "servers": [{"url": "http://127.0.0.1:7071", "description": "The default address."}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": TOKEN},
                "trialKey": {"type": "http", "scheme": "bearer", "description": TRIAL_KEY},
            },
            "schemas": schemas.definitions(),
        },
    });
    make_markdown(&mut document);
    document
}

/// Returns the security requirement of an operation. OpenAPI 3.1 lists the necessary roles beside the scheme.
fn security(access: Access) -> Value {
    match access {
        Access::Everyone => json!([]),
        // The empty requirement stands beside the token, because a proxy on loopback may have no token.
        Access::Role(role) => json!([{"token": [role]}, {}]),
        Access::RoleOrKey(role) => json!([{"token": [role]}, {"trialKey": []}, {}]),
    }
}

fn operation(endpoint: &Endpoint<Described>, schemas: &mut Schemas) -> Value {
    let mut parts =
        Operation { path: endpoint.path, schemas, parameters: Vec::new(), body: None, answers: Map::new() };
    (endpoint.description.0)(&mut parts);
    let Operation { parameters, body, answers, .. } = parts;
    let (summary, description) = endpoint.text.split_once('\n').unwrap_or((endpoint.text, ""));
    let mut operation = json!({"operationId": endpoint.name, "summary": summary});
    if !description.is_empty() {
        insert(&mut operation, "description", description.trim().into());
    }
    if !parameters.is_empty() {
        insert(&mut operation, "parameters", parameters.into());
    }
    if let Some(body) = body {
        insert(&mut operation, "requestBody", body);
    }
    insert(&mut operation, "responses", answers.into());
    operation
}

/// The schemas of all types in requests and answers. A field may be optional in a request and certain in an answer, so
/// each of the two has a generator of its own.
#[derive(Debug)]
struct Schemas {
    requests: SchemaGenerator,
    answers: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = SCHEMAS.into();
                settings.meta_schema = None;
            })
        };
        Self {
            requests: settings().for_deserialize().into_generator(),
            answers: settings().for_serialize().into_generator(),
        }
    }

    fn definitions(mut self) -> Value {
        let mut all = self.requests.take_definitions(true);
        // A test ensures that a type in both requests and answers has the same schema in both.
        all.extend(self.answers.take_definitions(true));
        all.sort_keys();
        all.into()
    }
}

/// The parts of one operation, to which the types of its handler add themselves.
#[derive(Debug)]
pub(super) struct Operation<'a> {
    path: &'static str,
    schemas: &'a mut Schemas,
    parameters: Vec<Value>,
    body: Option<Value>,
    answers: Map<String, Value>,
}

impl Operation<'_> {
    /// Adds the parameter in the path. A path has at most one.
    pub(super) fn path_parameter<T: JsonSchema>(&mut self) {
        let schema = self.schemas.requests.subschema_for::<T>();
        let name = self.path.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        let name = name.map_or("id", |(name, _)| name);
        self.parameters.push(json!({"name": name, "in": "path", "required": true, "schema": schema}));
    }

    /// Adds an optional header of the request, with a text.
    pub(super) fn header_parameter(&mut self, name: &str, description: &str) {
        let schema = json!({"type": "string"});
        let parameter = json!({"name": name, "in": "header", "required": false, "description": description, "schema": schema});
        self.parameters.push(parameter);
    }

    /// Adds each field of `T` as a parameter of the query.
    pub(super) fn query<T: JsonSchema>(&mut self) {
        // The fields themselves instead of a reference: a query string has no schema of its own in the document.
        let schema = T::json_schema(&mut self.schemas.requests);
        let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        for (name, field) in fields {
            let is_required = required.iter().any(|required| required == name);
            let mut parameter = json!({"name": name, "in": "query", "required": is_required});
            let mut field = without_null(field.clone());
            if let Some(description) = field.as_object_mut().and_then(|field| field.remove("description")) {
                insert(&mut parameter, "description", description);
            }
            insert(&mut parameter, "schema", field);
            self.parameters.push(parameter);
        }
    }

    /// Sets the JSON body.
    pub(super) fn body<T: JsonSchema>(&mut self, is_required: bool) {
        let schema = self.schemas.requests.subschema_for::<T>();
        self.body =
            Some(json!({"required": is_required, "content": {"application/json": {"schema": schema}}}));
    }

    /// Adds the answer of a status. The status `default` means every other status.
    pub(super) fn answer<T: JsonSchema + ?Sized>(
        &mut self,
        status: &str,
        description: &str,
        media_type: &str,
    ) {
        let schema = self.schemas.answers.subschema_for::<T>();
        let answer = json!({"description": description, "content": {media_type: {"schema": schema}}});
        self.answers.insert(status.to_owned(), answer);
    }

    /// Adds the answer of a status that has no body.
    pub(super) fn empty_answer(&mut self, status: &str, description: &str) {
        self.answers.insert(status.to_owned(), json!({"description": description}));
    }

    /// Adds a header to an answer that was added before.
    pub(super) fn header(&mut self, status: &str, name: &str, description: &str) {
        if let Some(answer) = self.answers.get_mut(status) {
            insert(
                answer,
                "headers",
                json!({name: {"description": description, "schema": {"type": "string"}}}),
            );
        }
    }
}

fn insert(object: &mut Value, name: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(name.to_owned(), value);
    }
}

/// Removes the alternative `null`. An optional field may be null in JSON; an optional parameter can only be absent.
fn without_null(mut schema: Value) -> Value {
    let null = json!("null");
    if let Some(types) = schema.get_mut("type")
        && let Some(all) = types.as_array_mut()
    {
        all.retain(|name| *name != null);
        if let [only] = all.as_slice() {
            *types = only.clone();
        }
    }
    if let Some(Value::Array(alternatives)) = schema.as_object_mut().and_then(|schema| schema.remove("anyOf"))
    {
        let mut rest = alternatives.into_iter().filter(|schema| schema.get("type") != Some(&null));
        if let Some(reference) = rest.next().as_ref().and_then(|schema| schema.get("$ref")) {
            insert(&mut schema, "$ref", reference.clone());
        }
    }
    schema
}

/// Makes Markdown of the Rust documentation in each description: links become plain names, and wrapped lines are joined.
fn make_markdown(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(text) if name == "description" => {
                        let paragraphs: Vec<_> =
                            text.split("\n\n").map(|lines| lines.replace('\n', " ")).collect();
                        *text = paragraphs.join("\n\n").replace("[`", "`").replace("`]", "`");
                    }
                    _ => make_markdown(member),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_markdown),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use rolltap_testing::is_current;

    use super::*;

    const FILE: &str = "docs/reference/admin-api.openapi.json";

    #[test]
    fn generated_openapi_of_the_admin_plane_is_current() {
        is_current(FILE, &format!("{:#}\n", openapi())).unwrap();
    }

    #[test]
    fn a_type_has_one_schema_and_each_reference_has_its_schema() {
        let mut schemas = Schemas::new();
        let operations: Vec<_> =
            routes::all().into_iter().map(|endpoint| operation(&endpoint, &mut schemas)).collect();
        for (name, schema) in schemas.requests.definitions() {
            let answer = schemas.answers.definitions().get(name);
            assert!(
                answer.is_none_or(|answer| answer == schema),
                "{name} differs in requests and in answers"
            );
        }
        let definitions = schemas.definitions();
        let text = json!([operations, definitions]).to_string();
        for reference in text.split("\"#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(definitions.get(name).is_some(), "{name} is referred to and not defined");
        }
        assert!(definitions.as_object().unwrap().len() > 20, "{definitions:#}");
    }

    #[test]
    fn each_operation_has_a_name_of_its_own_and_the_parameters_of_its_path() {
        let document = openapi();
        let mut names = std::collections::BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let name = operation["operationId"].as_str().unwrap();
                assert!(names.insert(name), "two operations are named {name}");
                let parameters = operation["parameters"].as_array();
                let in_path =
                    parameters.into_iter().flatten().filter(|parameter| parameter["in"] == "path").count();
                assert_eq!(in_path, path.matches('{').count(), "{method} {path}");
                assert!(
                    operation["responses"].as_object().is_some_and(|all| !all.is_empty()),
                    "{method} {path}"
                );
                assert!(operation["security"].is_array(), "{method} {path} names no role");
            }
        }
    }
}
