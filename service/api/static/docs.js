// The validator badge of the page would send the description to another host: it stays off.
SwaggerUIBundle({
  url: "/v1/openapi.yaml",
  dom_id: "#description",
  deepLinking: true,
  validatorUrl: null,
});
