//! Reads one part of a turn.

use serde_json::value::RawValue;

use super::fields::ObjectFields;
use super::signature;
use crate::dialect::bad_request::BadRequest;

/// The content of a part.
#[derive(Debug)]
pub(super) enum PartBody {
    Text(String),
    /// The reasoning of the model that the agent saw.
    Thought(String),
    /// The URL of an image: a `data:` URL for inline data.
    Image(String),
    Call {
        id: Option<String>,
        name: String,
        arguments: String,
    },
    Response(Response),
}

/// The result of a function call.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) id: Option<String>,
    pub(super) name: String,
    /// The result as JSON, in the agent's spelling.
    pub(super) content: String,
    /// The URLs of images that are part of the result.
    pub(super) images: Vec<String>,
}

/// A part, with the reasoning before it if it has a signature of this proxy.
#[derive(Debug)]
pub(super) struct SignedPart {
    pub(super) part: PartBody,
    pub(super) reasoning: Option<String>,
}

/// Parts from tools that run on Google's servers. Local models are not trained on them.
const OF_SERVER_TOOLS: [&str; 4] = ["executableCode", "codeExecutionResult", "toolCall", "toolResponse"];

pub(super) fn read(mut fields: ObjectFields<'_>) -> Result<SignedPart, BadRequest> {
    fields
        .refuse(&OF_SERVER_TOOLS, "is of a tool that runs at Google: it cannot be shown to a local model")?;
    fields.refuse(&["videoMetadata"], "is of a video: only images can be sent")?;
    fields.refuse(&["mediaResolution"], "cannot be chosen for a local model: leave it out")?;
    fields.without_effect(&["partMetadata"]);
    let is_thought = fields.flag("thought")?;
    let signature = fields.text("thoughtSignature")?;
    let mut said = [
        fields
            .text("text")?
            .map(|text| if is_thought { PartBody::Thought(text) } else { PartBody::Text(text) }),
        fields.object("inlineData")?.map(inline_image).transpose()?.map(PartBody::Image),
        fields.object("fileData")?.map(linked_image).transpose()?.map(PartBody::Image),
        fields.object("functionCall")?.map(call).transpose()?,
        fields.object("functionResponse")?.map(response).transpose()?.map(PartBody::Response),
    ]
    .into_iter()
    .flatten();
    let place = fields.place().to_owned();
    let part = match (said.next(), said.next()) {
        (Some(part), None) => part,
        // The last part of a stream may hold only the signature.
        (None, None) if is_thought || signature.is_some() => PartBody::Text(String::new()),
        (None, _) => {
            let message = format!(
                "{place} is empty: give text, inlineData, fileData, functionCall or functionResponse"
            );
            // An unknown field is a more helpful error than an empty part.
            return Err(fields.end().err().unwrap_or_else(|| BadRequest::at(place, message)));
        }
        (Some(_), Some(_)) => {
            let message = format!("{place} has two kinds of content: send two parts");
            return Err(BadRequest::at(place, message));
        }
    };
    fields.end()?;
    Ok(SignedPart { part, reasoning: signature.as_deref().and_then(signature::open) })
}

fn call(mut fields: ObjectFields<'_>) -> Result<PartBody, BadRequest> {
    fields.refuse(&["partialArgs"], "is of a call that is still being written: send whole calls")?;
    if fields.flag("willContinue")? {
        return Err(
            fields.fault("willContinue", "is of a call that is still being written: send whole calls")
        );
    }
    let (id, name) = (fields.text("id")?, fields.required_text("name")?);
    let arguments = object_text(&mut fields, "args")?;
    fields.end()?;
    Ok(PartBody::Call { id, name, arguments })
}

fn response(mut fields: ObjectFields<'_>) -> Result<Response, BadRequest> {
    if fields.flag("willContinue")? {
        return Err(fields.fault("willContinue", "announces more of the response: send it whole"));
    }
    // `scheduling` states when the model of a live session should react.
    fields.without_effect(&["scheduling"]);
    let (id, name) = (fields.text("id")?, fields.required_text("name")?);
    let content = object_text(&mut fields, "response")?;
    let parts = fields.objects("parts")?.into_iter().map(image_of_response);
    let images = parts.collect::<Result<Vec<_>, _>>()?;
    fields.end()?;
    Ok(Response { id, name, content, images })
}

fn image_of_response(fields: ObjectFields<'_>) -> Result<String, BadRequest> {
    let place = fields.place().to_owned();
    match read(fields)?.part {
        PartBody::Image(url) => Ok(url),
        _ => Err(BadRequest::at(&place, format!("{place} is no image: put everything else into response"))),
    }
}

/// Returns an object as JSON in the agent's spelling. Numbers and the order of keys are preserved.
fn object_text(fields: &mut ObjectFields<'_>, key: &str) -> Result<String, BadRequest> {
    let place = fields.place_of(key);
    let raw = fields.raw(key).map_or("{}", RawValue::get);
    ObjectFields::read(place, raw)?;
    Ok(raw.to_owned())
}

fn inline_image(mut fields: ObjectFields<'_>) -> Result<String, BadRequest> {
    fields.without_effect(&["displayName"]);
    let mime = image_type(&mut fields)?;
    // Python clients use the URL-safe alphabet of base64, which vLLM does not accept.
    let data = fields.required_text("data")?.replace('-', "+").replace('_', "/");
    fields.end()?;
    Ok(format!("data:{mime};base64,{data}"))
}

fn linked_image(mut fields: ObjectFields<'_>) -> Result<String, BadRequest> {
    fields.without_effect(&["displayName"]);
    image_type(&mut fields)?;
    let uri = fields.required_text("fileUri")?;
    if !["https://", "http://", "data:image/"].iter().any(|scheme| uri.starts_with(scheme)) {
        return Err(fields.fault("fileUri", "is no http address: send the image as inlineData"));
    }
    fields.end()?;
    Ok(uri)
}

fn image_type(fields: &mut ObjectFields<'_>) -> Result<String, BadRequest> {
    let mime = fields.required_text("mimeType")?;
    if mime.starts_with("image/") {
        return Ok(mime);
    }
    Err(fields.fault("mimeType", format!("is {mime}: only images can be sent")))
}
