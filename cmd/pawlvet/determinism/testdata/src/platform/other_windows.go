package platform

const pageSize = 8192
